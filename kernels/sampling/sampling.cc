#include "kernels/sampling/sampling.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/parallel.h"
#include "kernels/sampling/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "sampling";

absl::Status CheckIds(std::span<const int32_t> ids, int64_t vocabulary, absl::string_view what) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocabulary)
      return absl::InvalidArgumentError(
          absl::StrCat(what, " id ", id, " is outside of the vocabulary of ", vocabulary));
  }
  return absl::OkStatus();
}

absl::Status CheckRow(const SamplingRow& row, int64_t vocabulary) {
  if (!(row.temperature >= 0.0f)) return absl::InvalidArgumentError("temperature is negative or no number");
  if (!(row.repetition_penalty > 0.0f)) return absl::InvalidArgumentError("repetition_penalty is not positive");
  if (std::isnan(row.top_p) || std::isnan(row.min_p)) return absl::InvalidArgumentError("top_p or min_p is no number");
  if (row.repetition_penalty != 1.0f) RETURN_IF_ERROR(CheckIds(row.seen, vocabulary, "seen"));
  return CheckIds(row.forbidden, vocabulary, "forbidden");
}

}  // namespace

absl::Status Run(const Sampling& args) {
  RETURN_IF_ERROR(CheckView(kKernel, "logits", args.logits, DType::kFloat32, {args.logits.dim(0), args.logits.dim(1)},
                            Device::Cpu(), Layout::kStrided));
  const int64_t rows = args.logits.dim(0), vocabulary = args.logits.dim(1);
  if (static_cast<int64_t>(args.rows.size()) != rows || static_cast<int64_t>(args.out.size()) != rows) {
    return InvalidArgument(kKernel, "rows",
                           absl::StrCat("have ", args.rows.size(), " entries and out ", args.out.size(), " for ", rows,
                                        " rows of logits"));
  }
  std::vector<absl::Status> statuses(static_cast<size_t>(rows));
  ParallelTasks(rows, [&](int64_t, int64_t row) {
    const auto i = static_cast<size_t>(row);
    const std::span logits(args.logits.as<float>() + row * args.logits.row_stride, static_cast<size_t>(vocabulary));
    statuses[i] = CheckRow(args.rows[i], vocabulary);
    if (statuses[i].ok()) statuses[i] = cpu::SampleRow(logits, args.rows[i], &args.out[i]);
  });
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (!statuses[i].ok()) return InvalidArgument(kKernel, absl::StrCat("row ", i), std::string(statuses[i].message()));
  }
  return absl::OkStatus();
}

absl::Status Distribution(std::span<const float> logits, const SamplingRow& row, std::span<float> probabilities) {
  if (probabilities.size() != logits.size()) return InvalidArgument(kKernel, "probabilities", "are not one a logit");
  absl::Status status = CheckRow(row, static_cast<int64_t>(logits.size()));
  if (status.ok()) status = cpu::RowDistribution(logits, row, probabilities);
  if (!status.ok()) return InvalidArgument(kKernel, "row", std::string(status.message()));
  return absl::OkStatus();
}

}  // namespace sluice::kernels
