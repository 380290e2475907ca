// The integers of a micro-batch on the way to the device, in one block and one copy.
//
// On CUDA the block is put together in page-locked memory and copied in stream order; there are several such blocks, so
// that the host can be some micro-batches ahead without waiting. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/micro_batch.h"
#include "engine/device/device_memory.h"
#include "kernels/stream.h"

namespace sluice::engine {

class BatchUpload {
 public:
  // For batches of at most `token_slots` slots. ResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<BatchUpload>> Create(int64_t token_slots, kernels::Stream stream);
  ~BatchUpload();
  BatchUpload(const BatchUpload&) = delete;
  BatchUpload& operator=(const BatchUpload&) = delete;

  // Bytes on the device.
  static int64_t DeviceBytes(int64_t token_slots);

  // Issues the copy; the views below then show this batch to the work that follows on the stream.
  // cu_seqlens are padded to `room` + 1 entries by repeating the last.
  // REQUIRES: at most token_slots slots; sequences() <= room <= token_slots.
  absl::Status Issue(const MicroBatch& batch, int64_t room);

  // T = the micro-batch's slots, S = its scored slots; all int32 on the device.
  kernels::ConstTensorView input_ids(int64_t count) const { return Part(0, count); }     // [T]
  kernels::ConstTensorView position_ids(int64_t count) const { return Part(1, count); }  // [T]
  kernels::ConstTensorView labels(int64_t count) const { return Part(2, count); }        // [T]
  kernels::ConstTensorView scored(int64_t count) const { return Part(3, count); }        // [S] ascending
  kernels::ConstTensorView cu_seqlens(int64_t count) const { return Part(4, count); }    // [room + 1]

  int64_t scored_slots() const { return scored_slots_; }  // S of the last batch

 private:
  struct Staging;

  BatchUpload(int64_t token_slots, kernels::Stream stream);
  kernels::ConstTensorView Part(int part, int64_t count) const;
  void Fill(std::span<int32_t> block, const MicroBatch& batch, int64_t room);

  const int64_t token_slots_;
  const kernels::Stream stream_;
  DeviceMemory device_;
  std::vector<std::unique_ptr<Staging>> staging_;  // CUDA only
  size_t next_ = 0;
  int64_t scored_slots_ = 0;
};

}  // namespace sluice::engine
