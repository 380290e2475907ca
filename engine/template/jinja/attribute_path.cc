#include "engine/template/jinja/attribute_path.h"

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/string_search.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {

absl::StatusOr<AttributePath> AttributePath::Parse(const Value& attribute) {
  AttributePath path;
  if (attribute.is_none()) return path;
  if (attribute.is_integer()) {
    path.steps_.push_back(attribute);
    return path;
  }
  if (!attribute.is_string()) return TemplateError("an attribute must be a string or an integer");
  for (std::string& step : SplitAt(attribute.string(), ".", -1, false)) {
    const bool is_index = !step.empty() && step.find_first_not_of("0123456789") == std::string::npos;
    path.steps_.push_back(is_index ? Value::Integer(step) : Value::String(std::move(step)));
  }
  return path;
}

absl::StatusOr<std::vector<AttributePath>> AttributePath::ParseMany(const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    ASSIGN_OR_RETURN(AttributePath path, Parse(attribute));
    paths.push_back(std::move(path));
    return paths;
  }
  for (std::string& text : SplitAt(attribute.string(), ",", -1, false)) {
    ASSIGN_OR_RETURN(AttributePath path, Parse(Value::String(std::move(text))));
    paths.push_back(std::move(path));
  }
  return paths;
}

absl::StatusOr<Value> AttributePath::Get(const Value& item, const std::optional<Value>& otherwise) const {
  Value value = item;
  for (const Value& step : steps_) {
    ASSIGN_OR_RETURN(value, GetItem(value, step));
    if (value.is_undefined() && otherwise.has_value()) value = *otherwise;
  }
  return value;
}

Value IgnoreCase(const Value& value) { return value.is_string() ? Value::String(Lower(value.string())) : value; }

}  // namespace sluice::engine::jinja
