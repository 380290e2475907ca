// map, and select and reject in their two forms. In Python they are generators, made here at once.
#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/attribute_path.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/filter_tables.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/value_tests.h"

namespace sluice::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result MapToAttribute(const Value& items, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("map", arguments, {"attribute", "default"}, 1));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound[0]));
  const std::optional<Value> otherwise = bound.has(1) ? std::optional<Value>(bound[1]) : std::nullopt;
  std::vector<Value> mapped;
  for (const Value& item : items.items()) {
    ASSIGN_OR_RETURN(Value value, path.Get(item, otherwise));
    mapped.push_back(std::move(value));
  }
  return Value::List(std::move(mapped), SequenceKind::kGenerator);
}

Result Map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!IsTrue(input)) return Value::List({}, SequenceKind::kGenerator);
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  if (arguments.positional.empty()) {
    if (arguments.named.empty()) return TemplateError("map requires a filter argument");
    for (const auto& [name, value] : arguments.named) {
      if (name != "attribute" && name != "default") return TemplateError("Unexpected keyword argument '", name, "'");
    }
    return MapToAttribute(items, arguments);
  }
  if (!arguments.positional[0].is_string()) return TemplateError("map: the filter's name must be a string");
  const std::string& name = arguments.positional[0].string();
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) return TemplateError("No filter named '", name, "'.");
  const Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  std::vector<Value> mapped;
  for (const Value& item : items.items()) {
    RETURN_IF_ERROR(runtime.Step());
    ASSIGN_OR_RETURN(Value value, filter(runtime, item, rest));
    mapped.push_back(std::move(value));
  }
  return Value::List(std::move(mapped), SequenceKind::kGenerator);
}

// kByAttribute: the first argument is the attribute that is tested. kKeep: what passes stays, or goes.
template <bool kByAttribute, bool kKeep>
Result Select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!IsTrue(input)) return Value::List({}, SequenceKind::kGenerator);
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  AttributePath path;
  auto next = arguments.positional.begin();
  if (kByAttribute) {
    if (next == arguments.positional.end()) return TemplateError("Missing parameter for attribute name");
    ASSIGN_OR_RETURN(path, AttributePath::Parse(*next++));
  }
  TestFunction test = nullptr;
  if (next != arguments.positional.end()) {
    if (!next->is_string()) return TemplateError("the test's name must be a string");
    test = FindTest(next->string());
    if (test == nullptr) return TemplateError("No test named '", next->string(), "'.");
    ++next;
  }
  const Arguments rest{{next, arguments.positional.end()}, arguments.named};
  std::vector<Value> selected;
  for (const Value& item : items.items()) {
    RETURN_IF_ERROR(runtime.Step());
    ASSIGN_OR_RETURN(const Value tested, path.Get(item));
    bool passes = IsTrue(tested);
    if (test != nullptr) {
      ASSIGN_OR_RETURN(passes, test(runtime, tested, rest));
    }
    if (passes == kKeep) selected.push_back(item);
  }
  return Value::List(std::move(selected), SequenceKind::kGenerator);
}

constexpr NamedFilter kFilters[] = {
    {"map", Map},
    {"select", Select<false, true>},
    {"reject", Select<false, false>},
    {"selectattr", Select<true, true>},
    {"rejectattr", Select<true, false>},
};

}  // namespace

std::span<const NamedFilter> SelectionFilters() { return kFilters; }

}  // namespace sluice::engine::jinja
