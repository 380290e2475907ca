// The head on the GPU: three products a piece of rows (matmul.h), and between them one kernel over the piece's logits
// (logits.h). Forward alone has no logits in memory where scores.h can do it.
#include "common/status_macros.h"
#include "kernels/cross_entropy/backends.h"
#include "kernels/cross_entropy/logits.h"
#include "kernels/cross_entropy/pieces.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/cross_entropy/scores.h"
#include "kernels/cuda/workspace.h"
#include "kernels/matmul/matmul.h"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "cross_entropy";

// The memory of a call and the streams of its own kernels and of the products, whose workspace is behind ours.
struct Setup {
  CrossEntropyPieces pieces;
  Workspace workspace;
  Stream stream;
  Stream products;
  int64_t scored;
  bool all;  // every slot is scored: rows are used where they lie
};

absl::StatusOr<Setup> Prepare(const CrossEntropyInputs& in, Stream stream) {
  const int64_t scored = in.scored.dim(0);
  const CrossEntropyPieces pieces(scored, in.hidden.dim(1), in.weight.dim(0), in.hidden.dtype, in.logits_bytes);
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Take(kKernel, stream, pieces.bytes));
  Stream products = stream;
  if (workspace.data() == stream.workspace) {
    products.workspace = workspace.at<void>(pieces.bytes);
    products.workspace_bytes -= pieces.bytes;
  }
  return Setup{.pieces = pieces,
               .workspace = std::move(workspace),
               .stream = stream,
               .products = products,
               .scored = scored,
               .all = scored == in.hidden.dim(0)};
}

struct Piece {
  int64_t first;   // index of its first row in `scored`
  int64_t rows;    // scored ones
  int64_t padded;  // rows that are computed
  bool in_place;   // hidden is a part of the argument, and so may dhidden be
  ConstTensorView hidden;
  TensorView logits;  // strided
};

// Computes the piece of logits that begins at scored row `first`.
absl::StatusOr<Piece> ComputeLogits(const CrossEntropyInputs& in, const Setup& setup, int64_t first) {
  const int64_t hidden_size = in.hidden.dim(1);
  const DType dtype = in.hidden.dtype;
  const Device device = in.hidden.device;
  Piece piece = {.first = first, .rows = std::min(setup.pieces.piece_rows, setup.scored - first)};
  piece.padded = setup.pieces.PaddedRows(piece.rows);
  piece.in_place = setup.all && piece.rows == piece.padded;
  piece.logits = TensorView(setup.workspace.data(), dtype, {piece.padded, in.weight.dim(0)}, device);
  piece.logits.row_stride = setup.pieces.logits_stride;
  if (piece.in_place) {
    piece.hidden = in.hidden.Rows(first, first + piece.rows);
  } else {
    char* rows = setup.workspace.at<char>(setup.pieces.rows_offset);
    const TensorView gathered(rows, dtype, {piece.padded, hidden_size}, device);
    piece.hidden = gathered;
    RETURN_IF_ERROR(GatherScoredRows(in.hidden, in.scored.as<int32_t>() + first, piece.rows, gathered, setup.stream));
  }
  RETURN_IF_ERROR(kernels::Run(
      MatMul{.a = piece.hidden, .b = in.weight, .transpose_b = true, .c = piece.logits, .alpha = 1.0f / in.temperature},
      setup.products));
  return piece;
}

LogitsRows RowsOf(const CrossEntropyInputs& in, const Piece& piece) {
  return {.logits = piece.logits.data,
          .stride = piece.logits.row_stride,
          .vocabulary = static_cast<int>(in.weight.dim(0)),
          .rows = static_cast<int>(piece.rows),
          .padded = static_cast<int>(piece.padded),
          .slots = in.scored.as<int32_t>() + piece.first,
          .labels = in.labels.as<int32_t>()};
}

// dweight and dhidden from a piece whose logits have become dlogits.
template <typename Args>
absl::Status Propagate(const Args& args, const Setup& setup, const Piece& piece) {
  const CrossEntropyInputs& in = args.in;
  const float alpha = 1.0f / in.temperature;
  // dweight first: dhidden may overwrite the rows of hidden.
  if (!args.dweight.empty()) {
    RETURN_IF_ERROR(kernels::Run(MatMul{.a = piece.logits,
                                        .transpose_a = true,
                                        .b = piece.hidden,
                                        .c = args.dweight,
                                        .alpha = alpha,
                                        .beta = piece.first == 0 && !args.accumulate_dweight ? 0.0f : 1.0f},
                                 setup.products));
  }
  TensorView rows = args.dhidden;
  if (piece.in_place) {
    rows = rows.Rows(piece.first, piece.first + piece.rows);
  } else {
    rows = TensorView(setup.workspace.at<void>(setup.pieces.dhidden_offset), rows.dtype, {piece.padded, rows.dim(1)},
                      rows.device);
  }
  RETURN_IF_ERROR(kernels::Run(MatMul{.a = piece.logits, .b = in.weight, .c = rows, .alpha = alpha}, setup.products));
  if (piece.in_place) return absl::OkStatus();
  return ScatterScoredRows(rows, in.scored.as<int32_t>() + piece.first, piece.rows, args.dhidden, setup.stream);
}

void Zero(TensorView view, Stream stream) {
  if (!view.empty()) cudaMemsetAsync(view.data, 0, static_cast<size_t>(view.bytes()), HandleOf(stream));
}

// Zeroes what no piece writes: rows of dhidden that are not scored, and dweight if there is no piece at all.
template <typename Args>
absl::Status PrepareGradients(const Args& args, const Setup& setup) {
  if (!setup.all) {
    RETURN_IF_ERROR(ZeroOtherRows(args.in.scored.template as<int32_t>(), setup.scored, args.dhidden, setup.stream));
  }
  if (setup.scored == 0 && !args.accumulate_dweight) Zero(args.dweight, setup.stream);
  return LaunchStatus(kKernel);
}

}  // namespace

absl::Status Forward(const CrossEntropyForward& args, Stream stream) {
  ASSIGN_OR_RETURN(const Setup setup, Prepare(args.in, stream));
  if (!setup.all) {
    Zero(args.log_prob, stream);
    Zero(args.logsumexp, stream);
    Zero(args.entropy, stream);
  }
  if (CanScoreFused(args.in)) return ScoreFused(args, setup.workspace.data(), setup.pieces.bytes, stream);
  for (int64_t first = 0; first < setup.scored; first += setup.pieces.piece_rows) {
    ASSIGN_OR_RETURN(const Piece piece, ComputeLogits(args.in, setup, first));
    LogitsRows rows = RowsOf(args.in, piece);
    rows.log_prob = args.log_prob.as<float>();
    rows.logsumexp = args.logsumexp.as<float>();
    rows.entropy = args.entropy.as<float>();
    RETURN_IF_ERROR(Run(LogitsTask::kScore, args.in.hidden.dtype, rows, stream));
  }
  return LaunchStatus(kKernel);
}

absl::Status Backward(const CrossEntropyBackward& args, Stream stream) {
  ASSIGN_OR_RETURN(const Setup setup, Prepare(args.in, stream));
  RETURN_IF_ERROR(PrepareGradients(args, setup));
  for (int64_t first = 0; first < setup.scored; first += setup.pieces.piece_rows) {
    ASSIGN_OR_RETURN(const Piece piece, ComputeLogits(args.in, setup, first));
    LogitsRows rows = RowsOf(args.in, piece);
    rows.d_loss = args.d_loss.as<float>();
    rows.d_entropy = args.d_entropy.as<float>();
    rows.saved_logsumexp = args.logsumexp.as<float>();
    rows.saved_entropy = args.entropy.as<float>();
    RETURN_IF_ERROR(Run(LogitsTask::kGradient, args.in.hidden.dtype, rows, stream));
    RETURN_IF_ERROR(Propagate(args, setup, piece));
  }
  return LaunchStatus(kKernel);
}

absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream) {
  ASSIGN_OR_RETURN(const Setup setup, Prepare(args.in, stream));
  if (!setup.all) Zero(args.log_prob, stream);
  RETURN_IF_ERROR(PrepareGradients(args, setup));
  for (int64_t first = 0; first < setup.scored; first += setup.pieces.piece_rows) {
    ASSIGN_OR_RETURN(const Piece piece, ComputeLogits(args.in, setup, first));
    LogitsRows rows = RowsOf(args.in, piece);
    rows.d_loss = args.d_loss.as<float>();
    rows.log_prob = args.log_prob.as<float>();
    RETURN_IF_ERROR(Run(LogitsTask::kScoreThenGradient, args.in.hidden.dtype, rows, stream));
    RETURN_IF_ERROR(Propagate(args, setup, piece));
  }
  return LaunchStatus(kKernel);
}

}  // namespace sluice::kernels::cuda
