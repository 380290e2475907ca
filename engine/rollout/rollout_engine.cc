#include "engine/rollout/rollout_engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"

namespace sluice::engine {
namespace {

absl::Status CheckOptions(const RolloutOptions& options) {
  const auto at_least = [](const char* name, int64_t value, int64_t least) {
    if (value >= least) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be at least ", least));
  };
  RETURN_IF_ERROR(at_least("block_size", options.block_size, 1));
  RETURN_IF_ERROR(at_least("max_model_len", options.max_model_len, 2));
  RETURN_IF_ERROR(at_least("max_num_seqs", options.max_num_seqs, 1));
  RETURN_IF_ERROR(at_least("max_num_batched_tokens", options.max_num_batched_tokens, 1));
  if (options.max_num_batched_tokens < options.max_num_seqs) {
    return absl::InvalidArgumentError(absl::StrCat("max_num_batched_tokens is ", options.max_num_batched_tokens,
                                                   ", less than max_num_seqs (", options.max_num_seqs,
                                                   "): some sequences would never get a token"));
  }
  if (options.cache_tokens / options.block_size * options.block_size < options.max_model_len) {
    return absl::InvalidArgumentError(absl::StrCat("cache_tokens is ", options.cache_tokens, "; in pages of ",
                                                   options.block_size, " it must hold one sequence of max_model_len (",
                                                   options.max_model_len, ") tokens"));
  }
  return absl::OkStatus();
}

absl::Status CheckIds(absl::Span<const int32_t> ids, int64_t vocabulary, const char* what) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, "[", i, "] is ", ids[i], ", outside of the model's vocabulary of ", vocabulary));
  }
  return absl::OkStatus();
}

RolloutModelOptions ModelOptionsOf(const RolloutOptions& options) {
  return {.blocks = options.cache_tokens / options.block_size,
          .block_size = options.block_size,
          .max_batched_tokens = options.max_num_batched_tokens,
          .max_sequences = options.max_num_seqs,
          .max_model_len = options.max_model_len};
}

size_t HashOf(std::span<const int32_t> ids) { return absl::HashOf(absl::MakeConstSpan(ids.data(), ids.size())); }

}  // namespace

RolloutEngine::RolloutEngine(const Parameters* parameters, const Tokenizer* tokenizer, const RolloutOptions& options)
    : parameters_(parameters),
      tokenizer_(tokenizer),
      options_(options),
      model_(parameters, ModelOptionsOf(options)),
      blocks_(options.cache_tokens / options.block_size, options.block_size, options.prefix_sharing) {}

absl::StatusOr<std::unique_ptr<RolloutEngine>> RolloutEngine::Create(const Parameters* parameters,
                                                                     const Tokenizer* tokenizer,
                                                                     const RolloutOptions& options) {
  RETURN_IF_ERROR(Annotate(CheckOptions(options), "rollout"));
  return std::unique_ptr<RolloutEngine>(new RolloutEngine(parameters, tokenizer, options));
}

int64_t RolloutEngine::BytesFor(const Parameters& parameters, const RolloutOptions& options) {
  return RolloutModel::BytesFor(parameters, ModelOptionsOf(options));
}

absl::Status RolloutEngine::AllocateCache() { return model_.Allocate(); }

void RolloutEngine::FreeCache() {
  Preempt(running_.size());
  blocks_.ForgetContents();
  model_.Free();
}

void RolloutEngine::set_weight_version(int64_t version) {
  if (version == weight_version_) return;
  weight_version_ = version;
  Preempt(running_.size());
  blocks_.ForgetContents();
}

absl::Status RolloutEngine::CheckRequest(const RolloutRequest& request) const {
  RETURN_IF_ERROR(Validate(request.sampling));
  if (!request.sampling.stop.empty() && tokenizer_ == nullptr)
    return absl::InvalidArgumentError("stop strings need a tokenizer");
  const int64_t vocabulary = parameters_->config().vocab_size;
  const GeneratedPart& generated = request.generated;
  if (request.prompt_ids.empty()) return absl::InvalidArgumentError("the prompt is empty");
  RETURN_IF_ERROR(CheckIds(request.prompt_ids, vocabulary, "prompt_ids"));
  RETURN_IF_ERROR(CheckIds(request.sampling.stop_token_ids, vocabulary, "stop_token_ids"));
  RETURN_IF_ERROR(CheckIds(generated.token_ids, vocabulary, "generated"));
  if (generated.token_ids.size() != generated.log_probs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the part generated before has ", generated.token_ids.size(),
                                                   " tokens and ", generated.log_probs.size(), " log-probabilities"));
  }
  if (static_cast<int64_t>(generated.token_ids.size()) >= request.sampling.max_new_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("the part generated before has all ",
                                                   request.sampling.max_new_tokens, " tokens of max_new_tokens"));
  }
  const int64_t length = static_cast<int64_t>(request.prompt_ids.size() + generated.token_ids.size());
  if (length >= options_.max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrCat("its prompt", generated.token_ids.empty() ? "" : " and what was generated before", " of ", length,
                     " tokens leaves no room for an answer: the longest sequence has ", options_.max_model_len,
                     " tokens; shorten the prompt or raise max_model_len"));
  }
  return absl::OkStatus();
}

absl::Status RolloutEngine::Add(RolloutRequest request) {
  const std::string name = absl::StrCat("request ", request.id);
  RETURN_IF_ERROR(Annotate(CheckRequest(request), name));
  const auto is_same = [&](const Sequence& sequence) { return sequence->id() == request.id; };
  if (std::any_of(running_.begin(), running_.end(), is_same) ||
      std::any_of(waiting_.begin(), waiting_.end(), is_same)) {
    return absl::AlreadyExistsError(absl::StrCat(name, " is under way already"));
  }
  waiting_.push_back(std::make_unique<RolloutSequence>(std::move(request), &parameters_->config().eos_token_ids,
                                                       tokenizer_, options_.max_model_len));
  return absl::OkStatus();
}

SchedulerState RolloutEngine::StateForScheduler() const {
  SchedulerState state;
  state.free_blocks = blocks_.free_blocks();
  state.references = blocks_.references();
  // By prompt: who computes its full pages just now. Its other samples wait for them, for a pass or a few.
  absl::flat_hash_map<size_t, const RolloutSequence*> leaders;
  const auto shared_tokens = [&](const RolloutSequence& sequence) {
    return static_cast<int64_t>(sequence.prompt().size()) / options_.block_size * options_.block_size;
  };
  for (const Sequence& sequence : running_) {
    state.running.push_back({.tokens = sequence->length(), .computed = sequence->computed, .blocks = sequence->blocks});
    if (options_.prefix_sharing && sequence->computed < shared_tokens(*sequence)) {
      leaders.try_emplace(HashOf(sequence->prompt()), sequence.get());
    }
  }
  // More than there is room for beside those that run are not asked about: looking up their pages takes its time.
  int64_t room = options_.max_num_seqs - static_cast<int64_t>(running_.size());
  for (const Sequence& sequence : waiting_) {
    if (room <= 0) break;
    const std::vector<int32_t> matched = blocks_.Match(sequence->tokens());
    WaitingRequest waiting = {.tokens = sequence->length(),
                              .cached = static_cast<int64_t>(matched.size()) * options_.block_size};
    for (const int32_t block : matched) waiting.blocks_in_use += blocks_.references(block) > 0;
    // The last token of a prompt that fills its pages is computed by each sample itself.
    const int64_t shareable =
        std::min(shared_tokens(*sequence), (sequence->length() - 1) / options_.block_size * options_.block_size);
    if (options_.prefix_sharing && waiting.cached < shareable) {
      const auto [leader, first] = leaders.try_emplace(HashOf(sequence->prompt()), sequence.get());
      waiting.waits_for_prefix = !first && std::ranges::equal(leader->second->prompt(), sequence->prompt());
    }
    room -= !waiting.waits_for_prefix;
    state.waiting.push_back(waiting);
  }
  return state;
}

void RolloutEngine::Preempt(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Sequence sequence = std::move(running_.back());
    running_.pop_back();
    blocks_.Release(sequence->blocks);
    sequence->computed = 0;
    waiting_.push_front(std::move(sequence));
  }
}

absl::StatusOr<std::vector<RolloutEngine::Chunk>> RolloutEngine::Prepare(const SchedulerDecision& decision) {
  Preempt(decision.preempted.size());
  counters_.preemptions += static_cast<int64_t>(decision.preempted.size());
  std::vector<Chunk> chunks;
  for (const ScheduledChunk& chunk : decision.running) {
    RolloutSequence* sequence = running_[chunk.request].get();
    RETURN_IF_ERROR(blocks_.Grow(sequence->computed + chunk.tokens, sequence->blocks));
    chunks.push_back({sequence, chunk.tokens});
  }
  size_t admitted = 0;
  for (const ScheduledChunk& chunk : decision.admitted) {
    const auto place = waiting_.begin() + static_cast<int64_t>(chunk.request - admitted);
    RolloutSequence* sequence = place->get();
    const std::vector<int32_t> matched = blocks_.Match(sequence->tokens());
    blocks_.Adopt(matched);
    sequence->blocks = matched;
    sequence->computed = static_cast<int64_t>(matched.size()) * options_.block_size;
    // A page that matched before may have been given to another request of this pass.
    const int64_t tokens = std::min(chunk.tokens, sequence->length() - sequence->computed);
    if (const absl::Status grown = blocks_.Grow(sequence->computed + tokens, sequence->blocks); !grown.ok()) {
      blocks_.Release(sequence->blocks);
      sequence->computed = 0;
      return grown;
    }
    counters_.shared_tokens += sequence->computed;
    chunks.push_back({sequence, tokens});
    running_.push_back(std::move(*place));
    waiting_.erase(place);
    ++admitted;
  }
  return chunks;
}

absl::StatusOr<std::vector<kernels::SampledToken>> RolloutEngine::Draw(const std::vector<Chunk>& chunks,
                                                                       kernels::ConstTensorView logits) const {
  std::vector<kernels::SamplingRow> rows;
  std::vector<const RolloutSequence*> sequences;
  for (const Chunk& chunk : chunks) {
    if (!chunk.completes()) continue;
    rows.push_back(chunk.sequence->SamplingOfNext());
    sequences.push_back(chunk.sequence);
  }
  std::vector<kernels::SampledToken> drawn(rows.size());
  if (rows.empty()) return drawn;
  const kernels::Stream stream = EngineStream(parameters_->device());
  const absl::Status status = kernels::Run(kernels::Sampling{.logits = logits, .rows = rows, .out = drawn}, stream);
  if (status.ok()) return drawn;
  // Once more, one by one, to name the request.
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    RETURN_IF_ERROR(Annotate(kernels::Run(kernels::Sampling{.logits = logits.Rows(row, row + 1),
                                                            .rows = std::span(rows).subspan(i, 1),
                                                            .out = std::span(drawn).subspan(i, 1)},
                                          stream),
                             absl::StrCat("request ", sequences[i]->id(), ", token ", sequences[i]->generated())));
  }
  return status;
}

std::vector<RolloutSample> RolloutEngine::Commit(const std::vector<Chunk>& chunks,
                                                 const std::vector<kernels::SampledToken>& drawn) {
  std::vector<RolloutSample> finished;
  std::map<const RolloutSequence*, FinishReason> ended;
  size_t next = 0;
  for (const Chunk& chunk : chunks) {
    RolloutSequence& sequence = *chunk.sequence;
    const bool completes = chunk.completes();
    const int64_t full = sequence.computed / options_.block_size;
    counters_.prompt_tokens += completes ? chunk.tokens - (sequence.generated() > 0) : chunk.tokens;
    sequence.computed += chunk.tokens;
    if (sequence.computed / options_.block_size > full) {
      blocks_.Publish(sequence.tokens(), sequence.computed, sequence.blocks);
    }
    if (!completes) continue;
    ++counters_.generated_tokens;
    if (const auto reason = sequence.Add(drawn[next++], weight_version_); reason.has_value()) {
      ended[&sequence] = *reason;
    }
  }
  std::erase_if(running_, [&](const Sequence& sequence) {
    const auto found = ended.find(sequence.get());
    if (found == ended.end()) return false;
    blocks_.Release(sequence->blocks);
    finished.push_back(sequence->Finish(found->second));
    ++counters_.finished;
    return true;
  });
  return finished;
}

absl::StatusOr<std::vector<RolloutSample>> RolloutEngine::Step() {
  if (idle()) return std::vector<RolloutSample>();
  if (!model_.allocated()) return absl::FailedPreconditionError("the rollout's cache is not allocated");
  const SchedulerDecision decision = Schedule({.max_batched_tokens = options_.max_num_batched_tokens,
                                               .max_sequences = options_.max_num_seqs,
                                               .block_size = options_.block_size},
                                              StateForScheduler());
  ASSIGN_OR_RETURN(const std::vector<Chunk> chunks, Prepare(decision));
  if (chunks.empty()) {
    if (!decision.preempted.empty()) return std::vector<RolloutSample>();
    return absl::InternalError("the rollout scheduler found nothing to do although requests are waiting");
  }
  std::vector<PassSequence> pass;
  for (const Chunk& chunk : chunks) {
    pass.push_back({.token_ids = chunk.sequence->tokens().subspan(static_cast<size_t>(chunk.sequence->computed),
                                                                  static_cast<size_t>(chunk.tokens)),
                    .computed = chunk.sequence->computed,
                    .blocks = chunk.sequence->blocks,
                    .wants_logits = chunk.completes()});
  }
  ASSIGN_OR_RETURN(const kernels::ConstTensorView logits, model_.Forward(pass));
  ASSIGN_OR_RETURN(const std::vector<kernels::SampledToken> drawn, Draw(chunks, logits));
  ++counters_.steps;
  return Commit(chunks, drawn);
}

absl::StatusOr<RolloutSample> RolloutEngine::Abort(int64_t id) {
  const auto is_it = [&](const Sequence& sequence) { return sequence->id() == id; };
  if (const auto found = std::find_if(running_.begin(), running_.end(), is_it); found != running_.end()) {
    blocks_.Release((*found)->blocks);
    RolloutSample sample = (*found)->Finish(FinishReason::kAbort);
    running_.erase(found);
    ++counters_.aborted;
    return sample;
  }
  if (const auto found = std::find_if(waiting_.begin(), waiting_.end(), is_it); found != waiting_.end()) {
    RolloutSample sample = (*found)->Finish(FinishReason::kAbort);
    waiting_.erase(found);
    ++counters_.aborted;
    return sample;
  }
  return absl::NotFoundError(absl::StrCat("request ", id, " is not under way"));
}

std::vector<RolloutSample> RolloutEngine::AbortAll() {
  Preempt(running_.size());
  std::vector<RolloutSample> samples;
  for (const Sequence& sequence : waiting_) samples.push_back(sequence->Finish(FinishReason::kAbort));
  counters_.aborted += static_cast<int64_t>(samples.size());
  waiting_.clear();
  return samples;
}

absl::StatusOr<std::vector<RolloutSample>> RolloutEngine::Generate(std::vector<RolloutRequest> requests) {
  if (!idle()) return absl::FailedPreconditionError("the rollout engine has requests under way");
  absl::flat_hash_map<int64_t, size_t> place;
  std::vector<RolloutSample> samples(requests.size());
  const absl::Status status = [&]() -> absl::Status {
    for (RolloutRequest& request : requests) {
      const int64_t id = request.id;
      RETURN_IF_ERROR(Add(std::move(request)));
      place.emplace(id, place.size());
    }
    while (!idle()) {
      ASSIGN_OR_RETURN(std::vector<RolloutSample> finished, Step());
      for (RolloutSample& sample : finished) samples[place.at(sample.id)] = std::move(sample);
    }
    return absl::OkStatus();
  }();
  if (status.ok()) return samples;
  AbortAll();
  return status;
}

}  // namespace sluice::engine
