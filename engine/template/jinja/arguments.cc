#include "engine/template/jinja/arguments.h"

#include <algorithm>

#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/operators.h"

namespace sluice::engine::jinja {

absl::StatusOr<int64_t> BoundArguments::Integer(size_t parameter, int64_t otherwise) const {
  if (!has(parameter)) return otherwise;
  return AsIndex(*values_[parameter], "an argument");
}

bool BoundArguments::Truth(size_t parameter, bool otherwise) const {
  return has(parameter) ? IsTrue(*values_[parameter]) : otherwise;
}

absl::StatusOr<std::string> BoundArguments::Text(size_t parameter, std::string otherwise) const {
  if (!has(parameter)) return otherwise;
  const Value& value = *values_[parameter];
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return TemplateError(value.undefined_message());
  return TemplateError("an argument must be str, not ", TypeName(value));
}

absl::StatusOr<BoundArguments> Bind(std::string_view function, const Arguments& arguments,
                                    std::initializer_list<std::string_view> parameters, size_t required) {
  std::vector<std::optional<Value>> values(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return TemplateError(function, "() takes at most ", std::to_string(parameters.size()), " arguments (",
                         std::to_string(arguments.positional.size()), " given)");
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) {
      return TemplateError(function, "() got an unexpected keyword argument '", name, "'");
    }
    std::optional<Value>& slot = values[static_cast<size_t>(found - parameters.begin())];
    if (slot.has_value()) return TemplateError(function, "() got multiple values for argument '", name, "'");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values[i].has_value()) {
      return TemplateError(function, "() missing a required argument: '", *(parameters.begin() + i), "'");
    }
  }
  return BoundArguments(std::move(values));
}

}  // namespace sluice::engine::jinja
