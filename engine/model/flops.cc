#include "engine/model/flops.h"

namespace sluice::engine {

double TrainingFlops(const ModelConfig& config, double tokens, double sum_of_squared_lengths) {
  const double hidden = static_cast<double>(config.hidden_size);
  const double attention = hidden * static_cast<double>(config.qkv_size() + config.query_size());
  const double feed_forward = 3 * hidden * static_cast<double>(config.intermediate_size);
  const double layers = static_cast<double>(config.layers);
  const double head = config.value_head ? 1.0 : static_cast<double>(config.vocab_size);
  const double matrix_parameters = layers * (attention + feed_forward) + hidden * head;
  return 6 * matrix_parameters * tokens +
         6 * sum_of_squared_lengths * static_cast<double>(config.query_size()) * layers;
}

double TrainingFlops(const ModelConfig& config, std::span<const int64_t> sequence_lengths) {
  double tokens = 0, squares = 0;
  for (int64_t length : sequence_lengths) {
    tokens += static_cast<double>(length);
    squares += static_cast<double>(length) * static_cast<double>(length);
  }
  return TrainingFlops(config, tokens, squares);
}

}  // namespace sluice::engine
