// JSON objects of our own files and of model folders, read so that nothing is taken silently: a key given twice is an
// error (nlohmann keeps the last one), and so are text after the object and NUL bytes (which end its lexer).
#pragma once

#include <exception>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace sluice::engine {

// Parses one JSON object. InvalidArgument: "<what>: ..." with the byte where it went wrong or the key given twice.
absl::StatusOr<nlohmann::json> ParseJsonObject(const std::string& text, const std::string& what);

// Text of a value with sorted keys; floating-point numbers as the shortest text that reads back equal. `indent` < 0:
// one line. InvalidArgument: a string that is not UTF-8, or a number that JSON cannot hold (NaN, infinity).
absl::StatusOr<std::string> DumpJson(const nlohmann::json& value, int indent, const std::string& what);

// What a JSON library's exception says, without its error number and without the bytes it quotes (they may be no text).
std::string JsonErrorText(const std::exception& error);

}  // namespace sluice::engine
