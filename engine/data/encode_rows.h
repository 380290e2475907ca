// Work on all rows of a source with several threads, the answer as if by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "common/thread_pool.h"
#include "engine/data/row_source.h"

namespace sluice::engine {

// convert(row) → StatusOr<T> of each row, in their order. `convert` is called from several threads at once. An error is
// that of the first row, in their order, that has one, with the row's place before it. REQUIRES: threads >= 1.
template <typename T, typename Convert>
absl::StatusOr<std::vector<T>> ConvertRows(const RowSource& source, const std::vector<std::string>& columns,
                                           int threads, const Convert& convert) {
  constexpr int64_t kRowsOfPart = 512;
  const int64_t parts = (source.rows() + kRowsOfPart - 1) / kRowsOfPart;
  std::vector<T> converted(static_cast<size_t>(source.rows()));
  std::vector<absl::Status> statuses(static_cast<size_t>(parts));
  const auto convert_part = [&](int64_t part) -> absl::Status {
    const int64_t begin = part * kRowsOfPart;
    const int64_t end = std::min(source.rows(), begin + kRowsOfPart);
    ASSIGN_OR_RETURN(const std::vector<Row> rows, source.Read(begin, end, columns));
    for (int64_t i = begin; i < end; ++i) {
      absl::StatusOr<T> result = convert(rows[static_cast<size_t>(i - begin)]);
      if (!result.ok()) return Annotate(result.status(), source.Where(i));
      converted[static_cast<size_t>(i)] = *std::move(result);
    }
    return absl::OkStatus();
  };
  {
    ThreadPool pool(threads);
    for (int64_t part = 0; part < parts; ++part) {
      pool.Submit([&, part] { statuses[static_cast<size_t>(part)] = convert_part(part); });
    }
  }
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return converted;
}

}  // namespace sluice::engine
