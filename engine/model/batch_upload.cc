#include "engine/model/batch_upload.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

constexpr int kParts = 5;
constexpr size_t kBlocks = 4;  // micro-batches the host may be ahead

// Entries between the starts of two parts: each starts at a multiple of kMemoryAlignment bytes and has room for
// token_slots + 1 entries.
int64_t PartStride(int64_t token_slots) {
  constexpr int64_t kEntries = kMemoryAlignment / static_cast<int64_t>(sizeof(int32_t));
  return (token_slots + 1 + kEntries - 1) / kEntries * kEntries;
}

}  // namespace

struct BatchUpload::Staging {
  int32_t* block = nullptr;  // page-locked
  cudaEvent_t copied = nullptr;

  ~Staging() {
    if (copied != nullptr) {
      cudaEventSynchronize(copied);
      cudaEventDestroy(copied);
    }
    cudaFreeHost(block);
  }
};

BatchUpload::BatchUpload(int64_t token_slots, kernels::Stream stream) : token_slots_(token_slots), stream_(stream) {}

BatchUpload::~BatchUpload() = default;

int64_t BatchUpload::DeviceBytes(int64_t token_slots) {
  return kParts * PartStride(token_slots) * static_cast<int64_t>(sizeof(int32_t));
}

absl::StatusOr<std::unique_ptr<BatchUpload>> BatchUpload::Create(int64_t token_slots, kernels::Stream stream) {
  std::unique_ptr<BatchUpload> upload(new BatchUpload(token_slots, stream));
  const int64_t bytes = DeviceBytes(token_slots);
  ASSIGN_OR_RETURN(upload->device_, DeviceMemory::Allocate(bytes, stream.device));
  if (stream.device.is_cpu()) return upload;
  for (size_t i = 0; i < kBlocks; ++i) {
    auto staging = std::make_unique<Staging>();
    void* block = nullptr;
    if (cudaHostAlloc(&block, static_cast<size_t>(bytes), cudaHostAllocDefault) != cudaSuccess ||
        cudaEventCreateWithFlags(&staging->copied, cudaEventDisableTiming) != cudaSuccess) {
      return absl::ResourceExhaustedError(absl::StrCat("no page-locked memory for ", bytes, " bytes of a micro-batch"));
    }
    staging->block = static_cast<int32_t*>(block);
    upload->staging_.push_back(std::move(staging));
  }
  return upload;
}

kernels::ConstTensorView BatchUpload::Part(int part, int64_t count) const {
  return device_.View(part * PartStride(token_slots_) * static_cast<int64_t>(sizeof(int32_t)), kernels::DType::kInt32,
                      {count});
}

void BatchUpload::Fill(std::span<int32_t> block, const MicroBatch& batch, int64_t room) {
  const auto part = [&](int index) { return block.begin() + index * PartStride(token_slots_); };
  const auto ids_end = std::copy(batch.input_ids.begin(), batch.input_ids.end(), part(0));
  std::fill(ids_end, part(0) + token_slots_, 0);  // ranks exchange the ids of all slots
  std::copy(batch.position_ids.begin(), batch.position_ids.end(), part(1));
  std::copy(batch.labels.begin(), batch.labels.end(), part(2));
  auto scored = part(3);
  for (size_t slot = 0; slot < batch.labels.size(); ++slot) {
    if (batch.labels[slot] != kIgnoreLabel) *scored++ = static_cast<int32_t>(slot);
  }
  scored_slots_ = scored - part(3);
  const auto end = std::copy(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), part(4));
  std::fill(end, part(4) + room + 1, batch.cu_seqlens.back());
}

absl::Status BatchUpload::Issue(const MicroBatch& batch, int64_t room) {
  const auto entries = static_cast<size_t>(kParts * PartStride(token_slots_));
  auto* const device = static_cast<int32_t*>(device_.View(0, kernels::DType::kInt32, {1}).data);
  if (stream_.device.is_cpu()) {
    Fill({device, entries}, batch, room);
    return absl::OkStatus();
  }
  Staging& staging = *staging_[next_];
  next_ = (next_ + 1) % staging_.size();
  cudaEventSynchronize(staging.copied);  // of the batch that had this block before
  Fill({staging.block, entries}, batch, room);
  const auto stream = static_cast<cudaStream_t>(stream_.handle);
  cudaError_t error = cudaMemcpyAsync(device, staging.block, entries * sizeof(int32_t), cudaMemcpyHostToDevice, stream);
  if (error == cudaSuccess) error = cudaEventRecord(staging.copied, stream);
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("upload of a micro-batch: ", cudaGetErrorString(error)));
}

}  // namespace sluice::engine
