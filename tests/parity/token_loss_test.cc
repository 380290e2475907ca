// The token mean of fine-tuning from packed rows to gradients, against closed formulas: packing (engine/data), the one
// normaliser of an update (engine/loss) and the head's kernel. The head is the identity, so that hidden states are the
// goldens' logits and their gradients those of the logits.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/testing/status_matchers.h"
#include "engine/data/batch_plan.h"
#include "engine/loss/aggregation.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::TensorView;

nlohmann::json Golden(const char* path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

struct Head {
  std::vector<float> log_prob, d_logits;
};

// Of rows of logits; the rows that `d_loss` has a weight for are scored.
Head Score(const nlohmann::json& rows, size_t slots, const std::vector<int32_t>& labels,
           const std::vector<float>& d_loss) {
  const auto vocabulary = static_cast<int64_t>(rows.at(0).size());
  const auto count = static_cast<int64_t>(slots);
  std::vector<float> hidden(slots * static_cast<size_t>(vocabulary), std::nanf(""));  // padding is never read
  for (size_t t = 0; t < rows.size(); ++t) {
    const auto row = rows[t].get<std::vector<float>>();
    std::copy(row.begin(), row.end(), hidden.begin() + static_cast<ptrdiff_t>(t) * vocabulary);
  }
  std::vector<float> weight(static_cast<size_t>(vocabulary * vocabulary));
  for (int64_t v = 0; v < vocabulary; ++v) weight[static_cast<size_t>(v * vocabulary + v)] = 1;
  std::vector<int32_t> scored;
  for (size_t t = 0; t < d_loss.size(); ++t) {
    if (d_loss[t] != 0) scored.push_back(static_cast<int32_t>(t));
  }
  Head head{std::vector<float>(slots, 7), std::vector<float>(hidden.size(), 7)};
  const kernels::CrossEntropyInputs in{.hidden = ConstTensorView(hidden.data(), {count, vocabulary}),
                                       .weight = ConstTensorView(weight.data(), {vocabulary, vocabulary}),
                                       .labels = ConstTensorView(labels.data(), {count}),
                                       .scored = ConstTensorView(scored.data(), {static_cast<int64_t>(scored.size())})};
  EXPECT_OK(kernels::ForwardBackward({.in = in,
                                      .d_loss = ConstTensorView(d_loss.data(), {count}),
                                      .log_prob = TensorView(head.log_prob.data(), {count}),
                                      .dhidden = TensorView(head.d_logits.data(), {count, vocabulary})},
                                     kernels::DefaultStream(kernels::Device::Cpu())));
  return head;
}

// Labels are shifted inside each sequence: the last token of one is not asked for the first of the next.
TEST(TokenLossTest, NothingIsScoredAcrossTheBordersOfPackedSequences) {
  const nlohmann::json golden = Golden("tests/golden/data/packed_labels.json");
  const auto ids = golden["input_ids"].get<std::vector<int32_t>>();
  const auto mask = golden["mask"].get<std::vector<uint8_t>>();
  const auto bounds = golden["cu_seqlens"].get<std::vector<int32_t>>();
  std::vector<TokenSpan> sequences;
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    sequences.push_back(
        {ids.data() + bounds[s], mask.data() + bounds[s], bounds[s + 1] - bounds[s], static_cast<int64_t>(s)});
  }
  for (const size_t tail : {0, 5}) {
    const MicroBatch batch = PackMicroBatch(sequences, static_cast<int64_t>(ids.size() + tail));
    const BatchTotals totals{.tokens = batch.scored_tokens(), .sequences = batch.sequences()};
    const auto weight = static_cast<float>(TokenWeight(LossAggregation::kTokenMean, totals, 1));
    std::vector<float> d_loss(batch.labels.size());
    for (size_t t = 0; t < d_loss.size(); ++t) d_loss[t] = batch.labels[t] == kIgnoreLabel ? 0 : weight;
    const Head head = Score(golden["logits"], d_loss.size(), batch.labels, d_loss);
    const nlohmann::json& want = golden["expected"]["log_prob_of_next_token_at_position"];
    double loss = 0;
    for (size_t t = 0; t < d_loss.size(); ++t) {
      if (d_loss[t] == 0) {
        EXPECT_EQ(head.log_prob[t], 0) << t;
        continue;
      }
      EXPECT_NEAR(head.log_prob[t], want.at(t).get<double>(), 1e-6) << t;
      loss -= static_cast<double>(weight) * head.log_prob[t];
    }
    EXPECT_NEAR(loss, golden["expected"]["loss"].get<double>(), 1e-6);
  }
}

struct Update {
  int64_t tokens = 0;
  double loss = 0;
  double norm = 0;                        // of all logits' gradients
  std::vector<std::vector<float>> first;  // the gradient of each micro-batch's first row
};

// One update on these micro-batches, each computed by itself.
Update UpdateOn(const nlohmann::json& micro_batches) {
  Update update;
  for (const auto& micro_batch : micro_batches) {
    for (const auto& counted : micro_batch.at("mask")) update.tokens += counted.get<int64_t>();
  }
  const BatchTotals totals{.tokens = update.tokens, .sequences = static_cast<int64_t>(micro_batches.size())};
  const auto weight = static_cast<float>(TokenWeight(LossAggregation::kTokenMean, totals, 1));
  double squares = 0;
  for (const auto& micro_batch : micro_batches) {
    std::vector<float> d_loss;
    for (const auto& counted : micro_batch.at("mask")) d_loss.push_back(counted.get<int>() == 1 ? weight : 0);
    const Head head =
        Score(micro_batch.at("logits"), d_loss.size(), micro_batch.at("labels").get<std::vector<int32_t>>(), d_loss);
    for (size_t t = 0; t < d_loss.size(); ++t) update.loss -= static_cast<double>(d_loss[t]) * head.log_prob[t];
    for (const float gradient : head.d_logits) squares += static_cast<double>(gradient) * gradient;
    const auto row = head.d_logits.begin();
    update.first.emplace_back(row, row + static_cast<ptrdiff_t>(micro_batch.at("logits")[0].size()));
  }
  update.norm = std::sqrt(squares);
  return update;
}

// Micro-batches hold different numbers of scored tokens, one none, and the last update has fewer micro-batches.
TEST(TokenLossTest, AnUpdateIsTheMeanOverAllItsTokens) {
  const nlohmann::json golden = Golden("tests/golden/losses/l01.json");
  const nlohmann::json& all = golden.at("micro_batches");
  size_t first = 0;
  for (const nlohmann::json& want : golden.at("updates")) {
    const size_t last = std::min<size_t>(first + 4, all.size());
    const Update update = UpdateOn(nlohmann::json(std::vector<nlohmann::json>(
        all.begin() + static_cast<ptrdiff_t>(first), all.begin() + static_cast<ptrdiff_t>(last))));
    first = last;
    EXPECT_EQ(update.tokens, want.at("tokens"));
    EXPECT_NEAR(update.loss, want.at("loss").get<double>(), 1e-6);
    EXPECT_NEAR(update.norm, want.at("norm_of_all_logit_gradients").get<double>(), 1e-6);
    const nlohmann::json& rows = want.at("gradient_of_first_logit_row_per_micro_batch");
    ASSERT_EQ(update.first.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t v = 0; v < rows[i].size(); ++v) EXPECT_NEAR(update.first[i][v], rows[i][v].get<double>(), 1e-7) << i;
    }
  }
  EXPECT_EQ(first, all.size());
  const Update whole = UpdateOn(all);
  EXPECT_EQ(whole.tokens, golden.at("one_update_of_all_seven").at("tokens"));
  EXPECT_NEAR(whole.loss, golden.at("one_update_of_all_seven").at("loss").get<double>(), 1e-6);
}

}  // namespace
}  // namespace sluice::engine
