// The variables of one block, and the blocks around it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/template/jinja/ast.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}

  // The variable of this block or of the nearest block around it; null where there is none.
  const Value* Find(NameId name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [id, value] : scope->variables_) {
        if (id == name) return &value;
      }
    }
    return nullptr;
  }

  // Sets the variable in this block.
  void Set(NameId name, Value value) {
    for (auto& [id, present] : variables_) {
      if (id == name) {
        present = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

  void Clear() { variables_.clear(); }

 private:
  const std::shared_ptr<Scope> parent_;
  std::vector<std::pair<NameId, Value>> variables_;  // few; a scan beats hashing
};

using ScopePtr = std::shared_ptr<Scope>;

}  // namespace sluice::engine::jinja
