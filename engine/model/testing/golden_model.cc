#include "engine/model/testing/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file_system.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/load_parameters.h"

namespace sluice::engine::testing {
namespace {

template <typename T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  const auto tensor = file.Tensor(name);
  if (!tensor.ok()) {
    std::cerr << tensor.status() << "\n";
    std::abort();
  }
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

std::string FolderOf(const std::string& name) { return "tests/golden/model/" + name; }

}  // namespace

std::vector<float> GoldenModel::Expected(const std::string& name) const { return Values<float>(expected, name); }

std::vector<int32_t> GoldenModel::ExpectedInts(const std::string& name) const {
  return Values<int32_t>(expected, name);
}

absl::StatusOr<GoldenModel> LoadGoldenModel(const std::string& name) {
  ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(FolderOf(name)));
  ASSIGN_OR_RETURN(SafetensorsFile expected,
                   SafetensorsFile::Open(PosixFileSystem(), FolderOf(name) + "/expected.safetensors"));
  GoldenModel model{std::move(config), std::move(expected), {}};
  const std::vector<int32_t> all_ids = model.ExpectedInts("input_ids");
  const std::vector<int32_t> all_labels = model.ExpectedInts("labels");
  std::vector<std::vector<int32_t>> ids, labels;
  auto begin = all_ids.begin();
  auto label_begin = all_labels.begin();
  for (const int32_t length : model.ExpectedInts("sequence_lengths")) {
    ids.emplace_back(begin, begin + length);
    labels.emplace_back(label_begin, label_begin + length);
    begin += length;
    label_begin += length;
  }
  model.batch = Pack(ids, labels, static_cast<int64_t>(all_ids.size()) + 4);
  return model;
}

absl::StatusOr<std::unique_ptr<Parameters>> LoadGoldenParameters(const GoldenModel& model, const std::string& name,
                                                                 const ParametersOptions& options) {
  ASSIGN_OR_RETURN(const ModelFolder folder, ModelFolder::Open(PosixFileSystem(), FolderOf(name)));
  std::vector<std::string> warnings;
  return LoadParameters(model.config, options, folder, warnings);
}

MicroBatch Pack(const std::vector<std::vector<int32_t>>& ids, const std::vector<std::vector<int32_t>>& labels,
                int64_t token_slots) {
  MicroBatch batch;
  batch.cu_seqlens.push_back(0);
  for (size_t sequence = 0; sequence < ids.size(); ++sequence) {
    for (size_t i = 0; i < ids[sequence].size(); ++i) {
      batch.input_ids.push_back(ids[sequence][i]);
      batch.labels.push_back(labels[sequence][i]);
      batch.position_ids.push_back(static_cast<int32_t>(i));
    }
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.input_ids.size()));
    batch.sample_ids.push_back(static_cast<int64_t>(sequence));
  }
  batch.input_ids.resize(static_cast<size_t>(token_slots), 0);
  batch.position_ids.resize(static_cast<size_t>(token_slots), 0);
  batch.labels.resize(static_cast<size_t>(token_slots), kIgnoreLabel);
  return batch;
}

MicroBatch OneSequence(const MicroBatch& batch, int64_t index) {
  const int32_t begin = batch.cu_seqlens[static_cast<size_t>(index)];
  const int32_t end = batch.cu_seqlens[static_cast<size_t>(index) + 1];
  return Pack({{batch.input_ids.begin() + begin, batch.input_ids.begin() + end}},
              {{batch.labels.begin() + begin, batch.labels.begin() + end}}, end - begin);
}

std::string Difference(const std::vector<float>& got, const std::vector<float>& want, double relative,
                       double absolute) {
  if (got.size() != want.size()) return absl::StrFormat("%d values, expected %d", got.size(), want.size());
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double allowed = absolute + relative * std::abs(static_cast<double>(want[i]));
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])) / allowed;
    if (!(error <= worst)) {
      worst = std::isnan(error) ? HUGE_VAL : error;
      where = i;
    }
  }
  if (worst <= 1) return "";
  return absl::StrFormat("element %d of %d is %.9g, expected %.9g: %.2f times the tolerance", where, got.size(),
                         got[where], want[where], worst);
}

absl::StatusOr<std::string> GradientDifferences(const GoldenModel& golden, const Parameters& parameters,
                                                const GradientTolerance& tolerance) {
  ASSIGN_OR_RETURN(const HostTensors gradients, parameters.ExportGradients());
  if (gradients.tensors.empty()) return absl::InvalidArgumentError("there are no gradients");
  std::string differences;
  for (const TensorData& gradient : gradients.tensors) {
    const float* begin = reinterpret_cast<const float*>(gradient.bytes.data());
    const std::vector<float> want = golden.Expected("grad." + gradient.spec.name);
    float largest = 0;
    for (const float value : want) largest = std::max(largest, std::abs(value));
    const std::string difference = Difference({begin, begin + gradient.bytes.size() / sizeof(float)}, want,
                                              tolerance.relative, tolerance.absolute + tolerance.of_largest * largest);
    if (!difference.empty()) absl::StrAppend(&differences, gradient.spec.name, ": ", difference, "\n");
  }
  return differences;
}

}  // namespace sluice::engine::testing
