// Writes what a model folder computes for one batch: logits, loss sum and every gradient, as a safetensors file, for
// tools/oracle/compare_model.py.
//
//   model_dump FOLDER BATCH.safetensors OUTPUT.safetensors [fp32|bf16] [cpu|cuda]
//
// BATCH holds int32 input_ids [T], labels [T] and cu_seqlens [S + 1], without a tail. Gradients are of the mean loss.
#include <cstring>
#include <iostream>
#include <string>

#include "common/file_system.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/checkpoint/safetensors_file.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "engine/model/causal_lm.h"
#include "engine/model/load_parameters.h"
#include "engine/model/testing/golden_model.h"
#include "engine/model/testing/run_batch.h"

namespace sluice::engine {
namespace {

absl::StatusOr<std::vector<int32_t>> Ints(const SafetensorsFile& file, const std::string& name) {
  ASSIGN_OR_RETURN(const TensorData tensor, file.Tensor(name));
  std::vector<int32_t> values(tensor.bytes.size() / sizeof(int32_t));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

absl::StatusOr<MicroBatch> ReadBatch(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(PosixFileSystem(), path));
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Ints(file, "input_ids"));
  ASSIGN_OR_RETURN(const std::vector<int32_t> labels, Ints(file, "labels"));
  ASSIGN_OR_RETURN(const std::vector<int32_t> cu_seqlens, Ints(file, "cu_seqlens"));
  std::vector<std::vector<int32_t>> sequences, sequence_labels;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    sequences.emplace_back(ids.begin() + cu_seqlens[s], ids.begin() + cu_seqlens[s + 1]);
    sequence_labels.emplace_back(labels.begin() + cu_seqlens[s], labels.begin() + cu_seqlens[s + 1]);
  }
  return testing::Pack(sequences, sequence_labels, static_cast<int64_t>(ids.size()));
}

TensorData FloatTensor(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return {{name, DataType::kF32, std::move(shape)}, std::as_bytes(std::span(values))};
}

absl::Status Dump(const std::string& folder_path, const std::string& batch_path, const std::string& output_path,
                  const ParametersOptions& options) {
  ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(PosixFileSystem(), folder_path));
  ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(folder.config_json()));
  std::vector<std::string> warnings;
  ASSIGN_OR_RETURN(const auto parameters, LoadParameters(config, options, folder, warnings));
  for (const std::string& warning : warnings) std::cerr << warning << "\n";
  ASSIGN_OR_RETURN(const MicroBatch batch, ReadBatch(batch_path));
  ASSIGN_OR_RETURN(const auto model, CausalLm::Create(parameters.get(), {.token_slots = batch.token_slots()}));

  ASSIGN_OR_RETURN(const std::vector<float> logits, model->Logits(batch));
  ASSIGN_OR_RETURN(const double loss,
                   testing::ForwardBackwardLoss(*model, batch, 1.0 / static_cast<double>(batch.scored_tokens())));
  ASSIGN_OR_RETURN(HostTensors gradients, parameters->ExportGradients());
  const std::vector<float> loss_sum = {static_cast<float>(loss)};
  std::vector<TensorData> tensors = {FloatTensor("logits", {batch.used_slots(), config.vocab_size}, logits),
                                     FloatTensor("loss_sum", {1}, loss_sum)};
  for (TensorData& gradient : gradients.tensors) {
    gradient.spec.name = "grad." + gradient.spec.name;
    tensors.push_back(gradient);
  }
  return WriteSafetensors(PosixFileSystem(), output_path, tensors, {}).status();
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: model_dump FOLDER BATCH.safetensors OUTPUT.safetensors [fp32|bf16] [cpu|cuda]\n";
    return 2;
  }
  sluice::engine::ParametersOptions options;
  if (argc > 4 && std::string(argv[4]) == "bf16") options.dtype = sluice::kernels::DType::kBFloat16;
  if (argc > 5 && std::string(argv[5]) == "cuda") options.device = sluice::kernels::Device::Cuda(0);
  const absl::Status status = sluice::engine::Dump(argv[1], argv[2], argv[3], options);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
