#include "engine/template/jinja/objects.h"

#include <array>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"

namespace sluice::engine::jinja {

Value Namespace::Attribute(std::string_view name) const {
  const Value* found = attributes_.Find(name);
  return found != nullptr ? *found : Object::Attribute(name);
}

// loop.cycle(a, b, ...): one of its arguments by turns.
class Loop::Cycle final : public Object {
 public:
  explicit Cycle(size_t index) : index_(index) {}
  std::string TypeName() const override { return "method"; }
  bool IsCallable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override {
    if (arguments.positional.empty()) return TemplateError("no items for cycling given");
    return arguments.positional[index_ % arguments.positional.size()];
  }

 private:
  const size_t index_;
};

// loop.changed(x): whether x differs from what the last call got.
class Loop::Changed final : public Object {
 public:
  explicit Changed(std::shared_ptr<std::vector<Value>> last) : last_(std::move(last)) {}
  std::string TypeName() const override { return "method"; }
  bool IsCallable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override {
    Value now = Value::Tuple(arguments.positional);
    if (!last_->empty()) {
      ASSIGN_OR_RETURN(const bool is_equal, runtime.Equal(last_->front(), now));
      if (is_equal) return Value::Bool(false);
    }
    last_->assign(1, std::move(now));
    return Value::Bool(true);
  }

 private:
  const std::shared_ptr<std::vector<Value>> last_;
};

Value Loop::Attribute(std::string_view name) const {
  const std::vector<Value>& items = items_.items();
  const auto index = static_cast<int64_t>(index_);
  const auto size = static_cast<int64_t>(items.size());
  if (name == "index0") return Value::Int(index);
  if (name == "index") return Value::Int(index + 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == size);
  if (name == "length") return Value::Int(size);
  if (name == "revindex") return Value::Int(size - index);
  if (name == "revindex0") return Value::Int(size - index - 1);
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") return index > 0 ? items[index_ - 1] : Value::Undefined("there is no previous item");
  if (name == "nextitem") return index + 1 < size ? items[index_ + 1] : Value::Undefined("there is no next item");
  if (name == "cycle") return Value::FromObject(std::make_shared<Cycle>(index_));
  if (name == "changed") return Value::FromObject(std::make_shared<Changed>(last_changed_));
  return Object::Attribute(name);
}

}  // namespace sluice::engine::jinja
