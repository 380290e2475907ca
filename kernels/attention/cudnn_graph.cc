// The only file that includes cudnn-frontend: its headers take a minute to compile.
//
// Arrays are dense [T, heads, D]. cuDNN sees [B, heads, longest, D] with "ragged offsets": where each sequence starts,
// in elements, in an array on the device. So one plan serves every batch of at most B sequences and T tokens.
#include "kernels/attention/cudnn_graph.h"

#include <cudnn_frontend.h>

#include <exception>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::kernels::cuda {
namespace {

namespace frontend = cudnn_frontend;
using frontend::graph::Graph;
using Tensor = std::shared_ptr<frontend::graph::Tensor_attributes>;
using frontend::graph::Tensor_attributes;

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLogsumexp,
  kDout,
  kDq,
  kDk,
  kDv,
  kQueryLengths,
  kKeyLengths,
  kQStarts,
  kKvStarts,
  kRowStarts
};

absl::Status Check(frontend::error_t error, const AttentionShape& shape, const char* call) {
  if (error.is_good()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("attention: cuDNN: ", call, ": ", error.get_message(), " (", shape.tokens,
                                          " tokens, ", shape.sequences, " sequences of at most ", shape.longest, ", ",
                                          shape.q_heads, "/", shape.kv_heads, " heads of ", shape.head_dim, ")"));
}

class FrontendGraph : public AttentionGraph {
 public:
  FrontendGraph(std::shared_ptr<Graph> graph, int64_t workspace_bytes, const AttentionShape& shape)
      : graph_(std::move(graph)), workspace_bytes_(workspace_bytes), shape_(shape) {}

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  absl::Status Execute(cudnnHandle_t handle, const AttentionPointers& p, void* workspace) const override {
    const int64_t entries = shape_.sequences + 1;
    std::unordered_map<int64_t, void*> pack;
    const auto add = [&](Uid uid, const void* pointer) {
      if (pointer != nullptr) pack[uid] = const_cast<void*>(pointer);
    };
    add(kQ, p.q);
    add(kK, p.k);
    add(kV, p.v);
    add(kOut, p.out);
    add(kLogsumexp, p.logsumexp);
    add(kDout, p.dout);
    add(kDq, p.dq);
    add(kDk, p.dk);
    add(kDv, p.dv);
    add(kQueryLengths, p.bounds);
    add(kKeyLengths, p.bounds);
    add(kQStarts, p.bounds + entries);
    add(kKvStarts, p.bounds + 2 * entries);
    add(kRowStarts, p.bounds + 3 * entries);
    return Check(graph_->execute(handle, pack, workspace), shape_, "execute");
  }

 private:
  std::shared_ptr<Graph> graph_;
  int64_t workspace_bytes_;
  AttentionShape shape_;
};

// Describes the tensors of one graph.
class Builder {
 public:
  explicit Builder(const AttentionShape& shape) : shape_(shape), graph_(std::make_shared<Graph>()) {
    graph_->set_io_data_type(frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    query_lengths_ = Integers("query_lengths", kQueryLengths, shape.sequences);
    key_lengths_ = Integers("key_lengths", kKeyLengths, shape.sequences);
    q_starts_ = Integers("q_starts", kQStarts, shape.sequences + 1);
    kv_starts_ = Integers("kv_starts", kKvStarts, shape.sequences + 1);
    row_starts_ = Integers("row_starts", kRowStarts, shape.sequences + 1);
  }

  void BuildForward() {
    auto options = frontend::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    SetMasks(options);
    auto [out, logsumexp] = graph_->sdpa(Heads("q", kQ, true), Heads("k", kK, false), Heads("v", kV, false), options);
    Describe(*out, kOut, true).set_output(true);
    DescribeLogsumexp(*logsumexp).set_output(true);
  }

  void BuildBackward() {
    auto options = frontend::graph::SDPA_backward_attributes().set_name("attention_backward");
    SetMasks(options);
    // Makes the workspace depend on the tokens in all, not on sequences times the longest one.
    options.set_max_total_seq_len_q(shape_.tokens).set_max_total_seq_len_kv(shape_.tokens);
    options.set_deterministic_algorithm(shape_.deterministic);
    Tensor_attributes logsumexp;
    logsumexp.set_name("logsumexp");
    DescribeLogsumexp(logsumexp);
    auto [dq, dk, dv] =
        graph_->sdpa_backward(Heads("q", kQ, true), Heads("k", kK, false), Heads("v", kV, false),
                              Heads("out", kOut, true), Heads("dout", kDout, true), graph_->tensor(logsumexp), options);
    Describe(*dq, kDq, true).set_output(true);
    Describe(*dk, kDk, false).set_output(true);
    Describe(*dv, kDv, false).set_output(true);
  }

  absl::StatusOr<std::unique_ptr<AttentionGraph>> Finish(cudnnHandle_t handle) {
    RETURN_IF_ERROR(Check(graph_->validate(), shape_, "validate"));
    RETURN_IF_ERROR(Check(graph_->build_operation_graph(handle), shape_, "build_operation_graph"));
    RETURN_IF_ERROR(Check(graph_->create_execution_plans({frontend::HeurMode_t::A}), shape_, "create_execution_plans"));
    RETURN_IF_ERROR(Check(graph_->check_support(), shape_, "check_support"));
    RETURN_IF_ERROR(Check(graph_->build_plans(frontend::BuildPlanPolicy_t::HEURISTICS_CHOICE), shape_, "build_plans"));
    int64_t workspace_bytes = 0;
    RETURN_IF_ERROR(Check(graph_->get_workspace_size(workspace_bytes), shape_, "get_workspace_size"));
    return std::make_unique<FrontendGraph>(graph_, workspace_bytes, shape_);
  }

 private:
  Tensor Integers(const char* name, Uid uid, int64_t count) {
    return graph_->tensor(Tensor_attributes()
                              .set_name(name)
                              .set_uid(uid)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(frontend::DataType_t::INT32));
  }

  Tensor_attributes& Describe(Tensor_attributes& tensor, Uid uid, bool query) {
    const int64_t heads = query ? shape_.q_heads : shape_.kv_heads;
    return tensor.set_uid(uid)
        .set_dim({shape_.sequences, heads, shape_.longest, shape_.head_dim})
        .set_stride({shape_.longest * heads * shape_.head_dim, shape_.head_dim, heads * shape_.head_dim, 1})
        .set_ragged_offset(query ? q_starts_ : kv_starts_);
  }

  Tensor Heads(const char* name, Uid uid, bool query) {
    Tensor_attributes tensor;
    tensor.set_name(name);
    return graph_->tensor(Describe(tensor, uid, query));
  }

  // [Hq, T]: heads outermost.
  Tensor_attributes& DescribeLogsumexp(Tensor_attributes& tensor) {
    return tensor.set_uid(kLogsumexp)
        .set_data_type(frontend::DataType_t::FLOAT)
        .set_dim({shape_.sequences, shape_.q_heads, shape_.longest, 1})
        .set_stride({shape_.q_heads * shape_.longest, shape_.tokens, 1, 1})
        .set_ragged_offset(row_starts_);
  }

  template <typename Options>
  void SetMasks(Options& options) {
    options.set_attn_scale(shape_.scale)
        .set_seq_len_q(query_lengths_)
        .set_seq_len_kv(key_lengths_)
        .set_padding_mask(true)
        .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (shape_.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(shape_.window));
  }

  AttentionShape shape_;
  std::shared_ptr<Graph> graph_;
  Tensor query_lengths_, key_lengths_, q_starts_, kv_starts_, row_starts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionGraph>> BuildAttentionGraph(const AttentionShape& shape, bool backward,
                                                                    cudnnHandle_t handle) {
  try {
    Builder builder(shape);
    if (backward) {
      builder.BuildBackward();
    } else {
      builder.BuildForward();
    }
    return builder.Finish(handle);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("attention: cuDNN: ", error.what()));
  }
}

}  // namespace sluice::kernels::cuda
