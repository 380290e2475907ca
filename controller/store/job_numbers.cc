#include "controller/store/job_numbers.h"

#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::controller {
namespace {

constexpr std::string_view kJobPrefix = "job-";

// FNV-1a, 64 bit: catches tokens of other lists by accident, not by malice; a forged token only pages through a list
// that its owner may read anyway.
uint64_t Fingerprint(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char character : text) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  return hash;
}

uint64_t ListFingerprint(int64_t below_number, const JobFilter& filter, const std::string& store_id) {
  std::string text = absl::StrCat(store_id, "|", below_number, "|", filter.name_contains, "|");
  for (const v1::JobState state : filter.states) absl::StrAppend(&text, static_cast<int>(state), ",");
  return Fingerprint(text);
}

}  // namespace

std::string JobIdOfNumber(int64_t number) { return absl::StrCat(std::string(kJobPrefix), number); }

absl::StatusOr<int64_t> NumberOfJobId(const std::string& job_id) {
  int64_t number = 0;
  // The round trip refuses other spellings of a number, such as job-007.
  if (job_id.rfind(kJobPrefix, 0) == 0 && absl::SimpleAtoi(job_id.substr(kJobPrefix.size()), &number) && number > 0 &&
      JobIdOfNumber(number) == job_id) {
    return number;
  }
  return absl::NotFoundError(absl::StrCat("no such job: ", job_id.empty() ? "(empty id)" : job_id.substr(0, 128)));
}

std::string MakePageToken(int64_t below_number, const JobFilter& filter, const std::string& store_id) {
  return absl::StrFormat("%d-%016x", below_number, ListFingerprint(below_number, filter, store_id));
}

absl::StatusOr<int64_t> ParsePageToken(const std::string& token, const JobFilter& filter, const std::string& store_id) {
  const size_t dash = token.find('-');
  int64_t number = 0;
  if (dash != std::string::npos && absl::SimpleAtoi(token.substr(0, dash), &number) &&
      MakePageToken(number, filter, store_id) == token) {
    return number;
  }
  return absl::InvalidArgumentError(
      "page_token: not one that this list gave (the filters must stay the same over all pages)");
}

}  // namespace sluice::controller
