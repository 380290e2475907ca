#include "controller/scheduler/restart_backoff.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"

namespace sluice::controller {
namespace {

// In [-1, 1), the same for the same job and attempt in every process.
double Draw(const std::string& job_id, int32_t attempt) {
  const std::string name = absl::StrCat(job_id, "/", attempt);
  // A checksum of short names alone differs in few bits; the multiplication spreads them.
  const uint64_t mixed = (uint64_t{Crc32c(std::as_bytes(std::span(name)))} + 1) * 0x9E3779B97F4A7C15u;
  return static_cast<double>(mixed >> 11) / static_cast<double>(uint64_t{1} << 52) - 1;
}

}  // namespace

absl::Duration RestartDelay(int32_t losses, const std::string& job_id, int32_t attempt, const RestartBackoff& backoff) {
  // Infinite after very many losses, which the bound takes care of.
  const absl::Duration grown = backoff.first * std::pow(backoff.factor, losses - 1);
  return std::min(grown, backoff.longest) * (1 + backoff.spread * Draw(job_id, attempt));
}

}  // namespace sluice::controller
