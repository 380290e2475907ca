#include "engine/reward/pattern_match.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

constexpr uint32_t kHeapLimitKibibytes = 64 * 1024;

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct ResponsePattern::Compiled {
  ~Compiled() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

absl::StatusOr<ResponsePattern> ResponsePattern::Compile(const std::string& pattern, bool full, uint32_t match_limit) {
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_DOTALL | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
  if (full) options |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
  int code = 0;
  PCRE2_SIZE place = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &code, &place, nullptr);
  if (compiled->code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern: \"", pattern, "\" is no regular expression at byte ", place, ": ", ErrorText(code)));
  }
  ResponsePattern result;
  result.compiled_ = std::move(compiled);
  result.match_limit_ = match_limit;
  return result;
}

absl::StatusOr<bool> ResponsePattern::Matches(std::string_view response) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), match_limit_);
  pcre2_set_heap_limit(context.get(), kHeapLimitKibibytes);
  const int result = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(response.data()), response.size(), 0, 0,
                                 data.get(), context.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  return absl::ResourceExhaustedError(absl::StrCat("the pattern could not be matched to a response of ",
                                                   response.size(), " bytes: ", ErrorText(result),
                                                   "; write it without repeats inside repeats, or raise match_limit"));
}

}  // namespace sluice::engine
