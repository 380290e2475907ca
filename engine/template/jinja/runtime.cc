#include "engine/template/jinja/runtime.h"

#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/objects.h"
#include "engine/template/jinja/python_text.h"

namespace sluice::engine::jinja {

Runtime::~Runtime() {
  for (const std::shared_ptr<Namespace>& object : namespaces_) object->Clear();
}

absl::Status Runtime::Step(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ >= 0) return absl::OkStatus();
  return TemplateError("the template takes more than ", std::to_string(limits_.max_steps), " steps");
}

absl::StatusOr<bool> Runtime::Equal(const Value& a, const Value& b) {
  const bool is_equal = IsEqual(a, b, &steps_left_);
  if (const absl::Status status = Step(0); !status.ok()) return status;
  return is_equal;
}

absl::Status Runtime::CheckBytes(size_t bytes) const {
  if (bytes <= limits_.max_output_bytes) return absl::OkStatus();
  return TemplateError("the template makes a text of more than ", std::to_string(limits_.max_output_bytes), " bytes");
}

absl::Status Runtime::CheckItems(size_t items) const {
  if (items <= limits_.max_list_items) return absl::OkStatus();
  return TemplateError("the template makes a list of more than ", std::to_string(limits_.max_list_items), " items");
}

absl::StatusOr<std::string> Runtime::ToText(const Value& value) const {
  std::string text = Str(value, limits_.max_output_bytes);
  if (const absl::Status status = CheckBytes(text.size()); !status.ok()) return status;
  return text;
}

absl::StatusOr<Value> Runtime::MakeNamespace(Dict attributes) {
  if (static_cast<int64_t>(namespaces_.size()) >= limits_.max_namespaces) {
    return TemplateError("the template makes more than ", std::to_string(limits_.max_namespaces), " namespaces");
  }
  namespaces_.push_back(std::make_shared<Namespace>(std::move(attributes)));
  return Value::FromObject(namespaces_.back());
}

}  // namespace sluice::engine::jinja
