// The header of a safetensors file: 8 bytes little-endian length N, N bytes of JSON, then the tensors' bytes.
// The format is https://github.com/huggingface/safetensors; docs/checkpoint-format.md says what we accept beyond and
// below it. Pure functions; thread-safe. Nothing here allocates by a size that the file claims: work and memory are
// bounded by the bytes that are really there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

// Where one tensor lies: bytes [begin, end) counted from the end of the header.
struct TensorEntry {
  TensorSpec spec;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // 8 + N
};

// Reads and checks the header of a whole file's bytes.
// InvalidArgument, with the cause: too short for its length field; length 0, above 100 MB or beyond the file; not JSON,
// not UTF-8, not one object; a name given twice; a tensor without dtype, shape or two data_offsets, with an unknown key
// or dtype, a negative or fractional number, sizes that overflow; offsets that disagree with dtype and shape; bytes
// that belong to no tensor or to two; metadata that is not text.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file);

// Places the tensors for writing: sorted by element size (largest first), then dtype, then name, so that each starts at
// a multiple of its element size; begin and end set. This is the order of the `safetensors` Python library, too.
// InvalidArgument: a name that is empty, given twice or "__metadata__", or a shape that has no byte count.
absl::StatusOr<std::vector<TensorEntry>> PlaceTensors(std::vector<TensorSpec> specs);

// The bytes before the data: length and JSON, padded with spaces to a multiple of 8.
// InvalidArgument: a name or metadata text that is not UTF-8, or a header above 100 MB.
absl::StatusOr<std::string> SerializeSafetensorsHeader(const std::vector<TensorEntry>& placed,
                                                       const std::map<std::string, std::string>& metadata);

}  // namespace sluice::engine
