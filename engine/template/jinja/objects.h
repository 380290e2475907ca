// The mutable objects of a rendering: namespaces, and what a for loop knows about itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

// namespace(...): the one thing that {% set name.attribute = value %} may write to.
class Namespace final : public Object {
 public:
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}

  std::string TypeName() const override { return "Namespace"; }
  Value Attribute(std::string_view name) const override;
  void Set(const std::string& name, Value value) { attributes_.Set(name, std::move(value)); }
  // Drops the attributes. Two namespaces may hold each other, so the runtime clears them all at its end.
  void Clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

// `loop` inside a for loop over a sequence.
class Loop final : public Object {
 public:
  // REQUIRES: items.is_list().
  explicit Loop(Value items) : items_(std::move(items)) {}

  std::string TypeName() const override { return "LoopContext"; }
  // index, index0, revindex, revindex0, first, last, length, previtem, nextitem, depth, depth0, cycle, changed.
  Value Attribute(std::string_view name) const override;
  void MoveTo(size_t index) { index_ = index; }

 private:
  class Cycle;
  class Changed;

  const Value items_;
  size_t index_ = 0;
  // What `changed` was last called with; shared with the bound method.
  std::shared_ptr<std::vector<Value>> last_changed_ = std::make_shared<std::vector<Value>>();
};

}  // namespace sluice::engine::jinja
