// Filters over lists and dicts.
#include <algorithm>

#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/attribute_path.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/filter_tables.h"
#include "engine/template/jinja/methods.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result LengthFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("length", arguments, {}));
  ASSIGN_OR_RETURN(const int64_t length, Length(input));
  return Value::Int(length);
}

Result Default(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("default", arguments, {"default_value", "boolean"}));
  if (input.is_undefined() || (bound.Truth(1, false) && !IsTrue(input))) return bound.Get(0, Value::String(""));
  return input;
}

Result ToList(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("list", arguments, {}));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  return items.is_sequence_of(SequenceKind::kList) ? items : Value::List(items.items());
}

Result First(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("first", arguments, {}));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  if (items.items().empty()) return Value::Undefined("No first item, sequence was empty.");
  return items.items().front();
}

Result Last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("last", arguments, {}));
  if (input.is_sequence_of(SequenceKind::kGenerator)) return TemplateError("'generator' object is not reversible");
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  if (items.items().empty()) return Value::Undefined("No last item, sequence was empty.");
  return items.items().back();
}

Result JoinFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("join", arguments, {"d", "attribute"}));
  ASSIGN_OR_RETURN(const std::string separator, runtime.ToText(bound.Get(0, Value::String(""))));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.Get(1, Value::None())));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  std::string text;
  bool is_first = true;
  for (const Value& item : items.items()) {
    if (!is_first) text.append(separator);
    is_first = false;
    ASSIGN_OR_RETURN(const Value part, path.Get(item));
    ASSIGN_OR_RETURN(const std::string part_text, runtime.ToText(part));
    text.append(part_text);
    RETURN_IF_ERROR(runtime.CheckBytes(text.size()));
  }
  return Value::String(std::move(text));
}

Result Reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("reverse", arguments, {}));
  const SequenceKind kind =
      input.is_sequence_of(SequenceKind::kGenerator) ? SequenceKind::kList : SequenceKind::kGenerator;
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  std::vector<Value> reversed(items.items().rbegin(), items.items().rend());
  if (!input.is_string()) return Value::List(std::move(reversed), kind);
  std::string text;
  for (const Value& character : reversed) text.append(character.string());
  return Value::String(std::move(text));
}

struct Keyed {
  Value key;
  Value item;
};

// Sorts by key, stable; equal keys keep their order also in reverse.
absl::Status SortByKey(Runtime& runtime, bool reverse, std::vector<Keyed>* rows) {
  RETURN_IF_ERROR(runtime.Step(static_cast<int64_t>(rows->size())));
  absl::Status status;
  std::stable_sort(rows->begin(), rows->end(), [&](const Keyed& a, const Keyed& b) {
    const absl::StatusOr<bool> less = reverse ? IsLess(b.key, a.key) : IsLess(a.key, b.key);
    if (!less.ok()) status = less.status();
    return less.ok() && *less;
  });
  return status;
}

Value Items(const std::vector<Keyed>& rows) {
  std::vector<Value> items;
  for (const Keyed& row : rows) items.push_back(row.item);
  return Value::List(std::move(items));
}

Result Sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const std::vector<AttributePath> paths, AttributePath::ParseMany(bound.Get(2, Value::None())));
  const bool case_sensitive = bound.Truth(1, false);
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  std::vector<Keyed> rows;
  for (const Value& item : items.items()) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      ASSIGN_OR_RETURN(const Value part, path.Get(item));
      key.push_back(case_sensitive ? part : IgnoreCase(part));
    }
    rows.push_back({Value::List(std::move(key)), item});
  }
  RETURN_IF_ERROR(SortByKey(runtime, bound.Truth(0, false), &rows));
  return Items(rows);
}

Result DictSort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  ASSIGN_OR_RETURN(const std::string by, bound.Text(1, "key"));
  if (by != "key" && by != "value") return TemplateError("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  if (!input.is_dict()) return TemplateError("'", TypeName(input), "' object has no attribute 'items'");
  const bool case_sensitive = bound.Truth(0, false);
  std::vector<Keyed> rows;
  for (const auto& [key, value] : input.dict().items()) {
    const Value& sorted_by = by == "key" ? key : value;
    rows.push_back({case_sensitive ? sorted_by : IgnoreCase(sorted_by), Value::Tuple({key, value})});
  }
  RETURN_IF_ERROR(SortByKey(runtime, bound.Truth(2, false), &rows));
  return Items(rows);
}

Result ItemsFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("items", arguments, {}));
  std::vector<Value> items;
  if (!input.is_undefined()) {
    if (!input.is_dict()) return TemplateError("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : input.dict().items()) items.push_back(Value::Tuple({key, value}));
  }
  return Value::List(std::move(items), SequenceKind::kGenerator);
}

Result Unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("unique", arguments, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.Get(1, Value::None())));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  Dict seen;
  std::vector<Value> unique;
  for (const Value& item : items.items()) {
    ASSIGN_OR_RETURN(Value key, path.Get(item));
    if (!bound.Truth(0, false)) key = IgnoreCase(key);
    if (!IsHashable(key)) return TemplateError("unhashable type: '", TypeName(key), "'");
    RETURN_IF_ERROR(runtime.Step(key.is_string() ? 1 : static_cast<int64_t>(seen.size()) + 1));
    if (seen.Find(key) != nullptr) continue;
    seen.Set(key, Value::None());
    unique.push_back(item);
  }
  return Value::List(std::move(unique), SequenceKind::kGenerator);
}

template <bool kLargest>
Result Extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("min or max", arguments, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.Get(1, Value::None())));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  if (items.items().empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  std::optional<Keyed> best;
  for (const Value& item : items.items()) {
    ASSIGN_OR_RETURN(Value key, path.Get(item));
    if (!bound.Truth(0, false)) key = IgnoreCase(key);
    if (best.has_value()) {
      ASSIGN_OR_RETURN(const bool is_better, kLargest ? IsLess(best->key, key) : IsLess(key, best->key));
      if (!is_better) continue;
    }
    best = Keyed{key, item};
  }
  return best->item;
}

Result Sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("sum", arguments, {"attribute", "start"}));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(bound.Get(0, Value::None())));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  Value total = bound.Get(1, Value::Int(0));
  if (total.is_string()) return TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items.items()) {
    ASSIGN_OR_RETURN(const Value part, path.Get(item));
    ASSIGN_OR_RETURN(total, ApplyBinary(runtime, BinaryOperator::kAdd, total, part));
  }
  return total;
}

Result Batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t size, bound.Integer(0, 1));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : items.items()) {
    if (static_cast<int64_t>(batch.size()) == size) batches.push_back(Value::List(std::exchange(batch, {})));
    batch.push_back(item);
  }
  const Value fill = bound.Get(1, Value::None());
  if (!batch.empty()) {
    RETURN_IF_ERROR(runtime.CheckItems(static_cast<size_t>(std::max<int64_t>(size, 0))));
    while (!fill.is_none() && static_cast<int64_t>(batch.size()) < size) batch.push_back(fill);
    batches.push_back(Value::List(std::move(batch)));
  }
  return Value::List(std::move(batches), SequenceKind::kGenerator);
}

Result Slice(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("slice", arguments, {"slices", "fill_with"}, 1));
  ASSIGN_OR_RETURN(const int64_t slices, bound.Integer(0, 1));
  ASSIGN_OR_RETURN(const Value items, Iterate(input));
  if (slices <= 0) return TemplateError("slice: the number of slices must be positive");
  RETURN_IF_ERROR(runtime.CheckItems(static_cast<size_t>(slices)));
  const auto count = static_cast<int64_t>(items.items().size());
  const Value fill = bound.Get(1, Value::None());
  std::vector<Value> columns;
  auto next = items.items().begin();
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t size = count / slices + (i < count % slices);
    std::vector<Value> column(next, next + size);
    next += size;
    if (!fill.is_none() && i >= count % slices) column.push_back(fill);
    columns.push_back(Value::List(std::move(column)));
  }
  return Value::List(std::move(columns), SequenceKind::kGenerator);
}

Result Attribute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("attr", arguments, {"name"}, 1));
  ASSIGN_OR_RETURN(const std::string name, bound.Text(0, ""));
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  const Value attribute = input.is_object() ? input.object().Attribute(name) : FindMethod(input, name);
  if (!attribute.is_undefined()) return attribute;
  return Value::Undefined(Join("'", TypeName(input), " object' has no attribute '", name, "'"));  // keys do not count
}

constexpr NamedFilter kFilters[] = {
    {"length", LengthFilter}, {"count", LengthFilter}, {"default", Default},   {"d", Default},
    {"list", ToList},         {"first", First},        {"last", Last},         {"join", JoinFilter},
    {"reverse", Reverse},     {"sort", Sort},          {"dictsort", DictSort}, {"items", ItemsFilter},
    {"unique", Unique},       {"min", Extreme<false>}, {"max", Extreme<true>}, {"sum", Sum},
    {"batch", Batch},         {"slice", Slice},        {"attr", Attribute},
};

}  // namespace

std::span<const NamedFilter> SequenceFilters() { return kFilters; }

}  // namespace sluice::engine::jinja
