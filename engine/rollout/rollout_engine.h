// Answers to many prompts at once from a model's current weights: the generating side of reinforcement learning.
//
//   ASSIGN_OR_RETURN(auto engine, RolloutEngine::Create(parameters.get(), tokenizer, {.cache_tokens = 65536,
//                                                                                    .max_model_len = 2048}));
//   RETURN_IF_ERROR(engine->AllocateCache());
//   for (int64_t sample = 0; sample < n; ++sample) requests.push_back({.id = sample, .prompt_ids = prompt, ...});
//   ASSIGN_OR_RETURN(const std::vector<RolloutSample> samples, engine->Generate(requests));
//   engine->FreeCache();
//
// A sample is a function of the weights, its prompt, its SamplingParams and its id: on the CPU bit for bit, whatever
// else is generated with it, however prompts are cut into passes, whether pages ran out or prefixes were shared.
//
// Memory for cache and activations exists between AllocateCache and FreeCache only. Requests survive FreeCache and
// set_weight_version: their cache is computed again. Not thread-safe: one engine thread owns it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/parameters.h"
#include "engine/rollout/block_manager.h"
#include "engine/rollout/rollout_model.h"
#include "engine/rollout/rollout_sequence.h"
#include "engine/rollout/rollout_types.h"
#include "engine/rollout/scheduler.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {

class RolloutEngine {
 public:
  // Both are borrowed and must outlive the engine. Without a tokenizer (null) samples have no text and stop strings are
  // refused. End-of-text tokens are those of the model's configuration. No memory is taken.
  // InvalidArgument, naming the option, for sizes that do not fit one another.
  static absl::StatusOr<std::unique_ptr<RolloutEngine>> Create(const Parameters* parameters, const Tokenizer* tokenizer,
                                                               const RolloutOptions& options);

  // What AllocateCache takes with these options.
  static int64_t BytesFor(const Parameters& parameters, const RolloutOptions& options);

  RolloutEngine(const RolloutEngine&) = delete;
  RolloutEngine& operator=(const RolloutEngine&) = delete;

  // ResourceExhausted, naming the bytes, where the device has no memory. Either may be called at any time.
  absl::Status AllocateCache();
  void FreeCache();
  int64_t bytes() const { return model_.bytes(); }  // held now

  // The weights changed: what is cached of the old ones is dropped, requests under way go on with the new ones.
  void set_weight_version(int64_t version);

  // Queues a request. InvalidArgument, naming the request, for an empty prompt, one that leaves no room for an answer,
  // ids outside of the vocabulary, parameters that Validate refuses, a generated part that does not fit;
  // AlreadyExists for the id of an unfinished one.
  absl::Status Add(RolloutRequest request);

  // One forward pass and one token for each request that is ready for it; returns those that ended.
  // FailedPrecondition without a cache. InvalidArgument, naming the request, for logits that give no distribution
  // (NaN): nothing was drawn then, and the next Step fails alike until that request is aborted.
  absl::StatusOr<std::vector<RolloutSample>> Step();

  bool idle() const { return running_.empty() && waiting_.empty(); }

  // Ends a request now, with what it has. NotFound.
  absl::StatusOr<RolloutSample> Abort(int64_t id);
  std::vector<RolloutSample> AbortAll();

  // Adds all, steps until idle, returns the samples in the order of the requests. After an error nothing is left.
  // FailedPrecondition unless idle.
  absl::StatusOr<std::vector<RolloutSample>> Generate(std::vector<RolloutRequest> requests);

  const RolloutCounters& counters() const { return counters_; }

 private:
  using Sequence = std::unique_ptr<RolloutSequence>;
  // A sequence with the tokens that the next pass computes for it.
  struct Chunk {
    RolloutSequence* sequence;
    int64_t tokens;
    bool completes() const { return sequence->computed + tokens == sequence->length(); }
  };

  RolloutEngine(const Parameters* parameters, const Tokenizer* tokenizer, const RolloutOptions& options);
  absl::Status CheckRequest(const RolloutRequest& request) const;
  SchedulerState StateForScheduler() const;
  void Preempt(size_t count);  // the last of running_
  absl::StatusOr<std::vector<Chunk>> Prepare(const SchedulerDecision& decision);
  absl::StatusOr<std::vector<kernels::SampledToken>> Draw(const std::vector<Chunk>& chunks,
                                                          kernels::ConstTensorView logits) const;
  std::vector<RolloutSample> Commit(const std::vector<Chunk>& chunks, const std::vector<kernels::SampledToken>& drawn);

  const Parameters* parameters_;
  const Tokenizer* tokenizer_;
  const RolloutOptions options_;
  RolloutModel model_;
  BlockManager blocks_;
  int64_t weight_version_ = 0;
  std::vector<Sequence> running_;  // in the order of admission
  std::deque<Sequence> waiting_;
  RolloutCounters counters_;
};

}  // namespace sluice::engine
