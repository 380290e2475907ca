// Reads a record that the store wrote.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice::controller {

// DataLoss: the bytes are no such message.
template <typename Message>
absl::Status ParseRecord(const std::string& bytes, Message* message) {
  if (message->ParseFromString(bytes)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("store: a record of type ", message->GetTypeName(), " cannot be read"));
}

}  // namespace sluice::controller
