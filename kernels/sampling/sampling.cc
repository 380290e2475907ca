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

// Rows begin.. of the call, whose logits are on the host. `statuses`: one a row.
void SampleOnCpu(ConstTensorView logits, std::span<const SamplingRow> rows, std::span<SampledToken> out,
                 std::span<absl::Status> statuses) {
  ParallelTasks(static_cast<int64_t>(rows.size()), [&](int64_t, int64_t row) {
    const auto i = static_cast<size_t>(row);
    const std::span of_row(logits.as<float>() + row * logits.row_stride, static_cast<size_t>(logits.dim(1)));
    statuses[i] = cpu::SampleRow(of_row, rows[i], &out[i]);
  });
}

bool IsPlain(const SamplingRow& row, int64_t vocabulary) {
  const bool by_rank = row.top_k >= 1 && row.top_k < vocabulary;
  const bool penalised = row.repetition_penalty != 1.0f && !row.seen.empty();
  return !by_rank && row.top_p >= 1.0f && row.min_p <= 0.0f && !penalised && row.forbidden.empty();
}

// All rows are drawn on the device, and those that it cannot draw, or that gave no distribution, once more on the host.
absl::Status SampleOnCuda(const Sampling& args, Stream stream, std::span<absl::Status> statuses) {
  RETURN_IF_ERROR(cuda::SampleRows(args.logits, args.rows, args.out, stream));
  const auto on_host = [&](size_t i) { return args.out[i].token < 0 || !IsPlain(args.rows[i], args.logits.dim(1)); };
  std::vector<float> logits;
  for (size_t begin = 0; begin < args.rows.size();) {
    size_t end = begin;  // of a run of such rows
    while (end < args.rows.size() && on_host(end)) ++end;
    if (end == begin) {
      ++begin;
      continue;
    }
    const ConstTensorView run = args.logits.Rows(static_cast<int64_t>(begin), static_cast<int64_t>(end));
    logits.resize(static_cast<size_t>(run.elements()));
    RETURN_IF_ERROR(cuda::CopyRows(run, logits.data(), stream));
    SampleOnCpu(ConstTensorView(logits.data(), run.shape), args.rows.subspan(begin, end - begin),
                args.out.subspan(begin, end - begin), statuses.subspan(begin, end - begin));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Run(const Sampling& args, Stream stream) {
  RETURN_IF_ERROR(CheckView(kKernel, "logits", args.logits, DType::kFloat32, {args.logits.dim(0), args.logits.dim(1)},
                            stream.device, Layout::kStrided));
  const int64_t rows = args.logits.dim(0), vocabulary = args.logits.dim(1);
  if (static_cast<int64_t>(args.rows.size()) != rows || static_cast<int64_t>(args.out.size()) != rows) {
    return InvalidArgument(kKernel, "rows",
                           absl::StrCat("have ", args.rows.size(), " entries and out ", args.out.size(), " for ", rows,
                                        " rows of logits"));
  }
  std::vector<absl::Status> statuses(static_cast<size_t>(rows));
  for (size_t i = 0; i < statuses.size(); ++i) {
    statuses[i] = CheckRow(args.rows[i], vocabulary);
    if (!statuses[i].ok()) return InvalidArgument(kKernel, absl::StrCat("row ", i), std::string(statuses[i].message()));
  }
  if (rows == 0) return absl::OkStatus();
  if (stream.device.is_cpu()) {
    SampleOnCpu(args.logits, args.rows, args.out, std::span(statuses));
  } else {
    RETURN_IF_ERROR(SampleOnCuda(args, stream, std::span(statuses)));
  }
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
