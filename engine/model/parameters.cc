#include "engine/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "kernels/flat/flat.h"
#include "kernels/parallel.h"
#include "kernels/philox.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::TensorView;

constexpr char kEmbeddingName[] = "model.embed_tokens.weight";
constexpr char kHeadName[] = "lm_head.weight";
constexpr char kValueHeadName[] = "score.weight";

const TensorData* FindTensor(std::span<const TensorData> tensors, const char* name) {
  for (const TensorData& tensor : tensors) {
    if (tensor.spec.name == name) return &tensor;
  }
  return nullptr;
}

// FNV-1a: a stream number that depends on nothing but the name.
uint64_t StreamOf(const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// Box-Muller on the two halves of a Philox block: elements 4 * block .. 4 * block + 3.
void FillNormal(uint64_t seed, uint64_t stream, float deviation, int64_t first_block, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 4) {
    const kernels::PhiloxBlock block = kernels::Philox(seed, stream, static_cast<uint64_t>(first_block) + i / 4);
    float normal[4];
    for (size_t half = 0; half < 2; ++half) {
      // 24 bits each, the first in (0, 1] so that its logarithm is finite.
      const float u = static_cast<float>((block[2 * half] >> 8) + 1) * 0x1p-24f;
      const float v = static_cast<float>(block[2 * half + 1] >> 8) * 0x1p-24f;
      const float radius = std::sqrt(-2.0f * std::log(u)) * deviation;
      normal[2 * half] = radius * std::cos(2 * std::numbers::pi_v<float> * v);
      normal[2 * half + 1] = radius * std::sin(2 * std::numbers::pi_v<float> * v);
    }
    std::copy_n(normal, std::min<size_t>(4, out.size() - i), out.begin() + static_cast<int64_t>(i));
  }
}

// A config that ties head and embedding, and a file with a head: whether they are the same tensor.
bool HeadDiffersFromEmbedding(std::span<const TensorData> tensors) {
  const TensorData* head = FindTensor(tensors, kHeadName);
  const TensorData* embedding = FindTensor(tensors, kEmbeddingName);
  if (head == nullptr || embedding == nullptr) return false;
  return head->spec.dtype != embedding->spec.dtype || head->spec.shape != embedding->spec.shape ||
         std::memcmp(head->bytes.data(), embedding->bytes.data(), head->bytes.size()) != 0;
}

void ReportUnexpected(const ParameterLayout& layout, const ModelConfig& config, std::span<const TensorData> tensors,
                      std::vector<std::string>& warnings) {
  std::vector<std::string> names;
  for (const TensorData& tensor : tensors) {
    const bool unused_head = (config.tie_word_embeddings || config.value_head) && tensor.spec.name == kHeadName;
    if (layout.Find(tensor.spec.name) == nullptr && !unused_head) names.push_back(tensor.spec.name);
  }
  if (names.empty()) return;
  std::sort(names.begin(), names.end());
  const size_t shown = std::min<size_t>(names.size(), 8);
  warnings.push_back(absl::StrCat("the model folder holds ", names.size(),
                                  " tensors that this architecture does not have; they are not used: ",
                                  absl::StrJoin(names.begin(), names.begin() + static_cast<int64_t>(shown), ", "),
                                  names.size() > shown ? ", ..." : ""));
}

}  // namespace

Parameters::Parameters(const ModelConfig& config, const ParametersOptions& options)
    : config_(config), layout_(config), options_(options) {}

absl::StatusOr<std::unique_ptr<Parameters>> Parameters::CreateZeros(const ModelConfig& config,
                                                                    const ParametersOptions& options) {
  if (!kernels::IsFloating(options.dtype)) return absl::InvalidArgumentError("parameters: dtype must be fp32 or bf16");
  std::unique_ptr<Parameters> parameters(new Parameters(config, options));
  const int64_t size = parameters->layout_.size();
  ASSIGN_OR_RETURN(parameters->values_memory_,
                   DeviceMemory::Allocate(size * kernels::SizeOf(options.dtype), options.device));
  parameters->values_ = parameters->values_memory_.View(0, options.dtype, {size});
  parameters->weights_ = CarveWeights(config, parameters->layout_, parameters->values_);
  if (options.gradients) {
    constexpr kernels::DType kGradientType = kernels::DType::kFloat32;
    ASSIGN_OR_RETURN(parameters->gradients_memory_,
                     DeviceMemory::Allocate(size * kernels::SizeOf(kGradientType), options.device));
    parameters->gradients_ = parameters->gradients_memory_.View(0, kGradientType, {size});
    parameters->gradient_weights_ = CarveWeights(config, parameters->layout_, parameters->gradients_);
  }
  return parameters;
}

absl::StatusOr<std::unique_ptr<Parameters>> Parameters::CreateRandom(const ModelConfig& config,
                                                                     const ParametersOptions& options, uint64_t seed) {
  ASSIGN_OR_RETURN(std::unique_ptr<Parameters> parameters, CreateZeros(config, options));
  RETURN_IF_ERROR(parameters->FillRandom(seed));
  return parameters;
}

absl::Status Parameters::FillRandom(uint64_t seed) {
  constexpr int64_t kPiece = int64_t{1} << 24;  // a multiple of 4: pieces start at whole Philox blocks
  constexpr int64_t kBlocksAtOnce = int64_t{1} << 14;
  std::vector<float> piece;
  for (const ParameterSpec& spec : layout_.parameters()) {
    const bool is_bias = absl::EndsWith(spec.name, ".bias");
    const TensorView slice = values_.Rows(spec.offset, spec.offset + spec.shape.elements());
    if (is_bias) continue;
    for (int64_t begin = 0; begin < slice.elements(); begin += kPiece) {
      const int64_t end = std::min(begin + kPiece, slice.elements());
      piece.assign(static_cast<size_t>(end - begin), 1.0f);
      if (spec.decayed) {
        const int64_t blocks = (end - begin + 3) / 4;
        kernels::ParallelFor(blocks, kBlocksAtOnce, [&](int64_t first, int64_t last) {
          const size_t from = static_cast<size_t>(4 * first);
          const size_t to = std::min(static_cast<size_t>(4 * last), piece.size());
          FillNormal(seed, StreamOf(spec.name), static_cast<float>(config_.initializer_range), begin / 4 + first,
                     std::span(piece).subspan(from, to - from));
        });
      }
      RETURN_IF_ERROR(CopyTensor(ConstTensorView(piece.data(), {end - begin}), slice.Rows(begin, end)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Parameters>> Parameters::CreateFromTensors(const ModelConfig& config,
                                                                          const ParametersOptions& options,
                                                                          std::span<const TensorData> tensors,
                                                                          std::vector<std::string>& warnings) {
  ModelConfig resolved = config;
  if (config.tie_word_embeddings && !config.value_head && HeadDiffersFromEmbedding(tensors)) {
    resolved.tie_word_embeddings = false;
    warnings.push_back(
        "config.json says tie_word_embeddings, but the model folder holds an lm_head.weight that differs from the "
        "embedding: the folder's head is used and trained as a tensor of its own");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Parameters> parameters, CreateZeros(resolved, options));
  std::vector<TensorData> completed(tensors.begin(), tensors.end());
  std::vector<float> value_head;
  if (config.value_head && FindTensor(tensors, kValueHeadName) == nullptr) {
    value_head.resize(static_cast<size_t>(config.hidden_size));
    FillNormal(options.seed, StreamOf(kValueHeadName), static_cast<float>(config.initializer_range), /*first_block=*/0,
               value_head);
    completed.push_back(
        {{kValueHeadName, DataType::kF32, {1, config.hidden_size}}, std::as_bytes(std::span<const float>(value_head))});
    warnings.push_back("the model folder has no score.weight: a new value head was drawn");
  }
  RETURN_IF_ERROR(parameters->ImportValues(completed));
  ReportUnexpected(parameters->layout_, resolved, tensors, warnings);
  return parameters;
}

absl::Status Parameters::ZeroGradients() {
  if (!has_gradients()) return absl::FailedPreconditionError("parameters were created without gradients");
  return kernels::Fill(gradients_, 0.0f, EngineStream(device()));
}

absl::Status Parameters::MoveValues(kernels::Device to) {
  ASSIGN_OR_RETURN(values_memory_, values_memory_.CopiedTo(to));
  values_ = values_memory_.View(0, options_.dtype, {layout_.size()});
  weights_ = CarveWeights(config_, layout_, values_);
  return absl::OkStatus();
}

absl::Status Parameters::MoveGradients(kernels::Device to) {
  if (!has_gradients()) return absl::FailedPreconditionError("parameters were created without gradients");
  ASSIGN_OR_RETURN(gradients_memory_, gradients_memory_.CopiedTo(to));
  gradients_ = gradients_memory_.View(0, kernels::DType::kFloat32, {layout_.size()});
  gradient_weights_ = CarveWeights(config_, layout_, gradients_);
  return absl::OkStatus();
}

absl::StatusOr<HostTensors> Parameters::ExportValues(kernels::DType dtype) const {
  return ExportFlat(layout_, values_, dtype);
}

absl::StatusOr<HostTensors> Parameters::ExportGradients() const {
  if (!has_gradients()) return absl::FailedPreconditionError("parameters were created without gradients");
  return ExportFlat(layout_, gradients_, kernels::DType::kFloat32);
}

absl::Status Parameters::ImportValues(std::span<const TensorData> tensors) {
  return ImportFlat(layout_, tensors, values_);
}

}  // namespace sluice::engine
