// Columns of a row that hold conversations, checked and brought to one form: a list of {role, content, ...}.
//
// A list may also come as JSON text, the usual way to keep turns of different shapes in one Parquet column.
// All errors are kInvalidArgument and name the column and the message in it.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/row_file.h"

namespace sluice::engine {

// The column's value. An error where it is missing (names the columns that are there) or null.
absl::StatusOr<jinja::Value> RequiredColumn(const Row& row, const std::string& column);

// {role, content, ...}: `role` is text; `content` is text or a list of parts, and may be missing where the assistant
// calls tools or only thinks. Other keys pass through.
absl::StatusOr<jinja::Value> MessagesColumn(const Row& row, const std::string& column);

// {from, value} as {role, content}. An error for a speaker that no role stands for.
absl::StatusOr<jinja::Value> ShareGptColumn(const Row& row, const std::string& column);

// A list of tools, or nothing where the column is absent, null or an empty list.
absl::StatusOr<std::optional<jinja::Value>> ToolsColumn(const Row& row, const std::string& column);

// A truth value, or nothing where the column is absent or null.
absl::StatusOr<std::optional<bool>> FlagColumn(const Row& row, const std::string& column);

// The messages with a system turn first, where they have none (a `developer` turn counts as one).
jinja::Value WithSystemPrompt(const jinja::Value& messages, const std::string& system_prompt);

}  // namespace sluice::engine
