#include "controller/dataflow/stage_span.h"

#include <algorithm>

#include "common/proto_time.h"

namespace sluice::controller {
namespace {

constexpr char kOnlyPool[] = "all";

bool RunsOn(const Stage& stage, const Pool& pool) {
  return stage.ranks.empty() ||
         std::any_of(stage.ranks.begin(), stage.ranks.end(), [&](int32_t rank) { return pool.Has(rank); });
}

}  // namespace

v1::StageSpan SpanOf(const FlowPlan& flow, const Stage& stage, absl::Time began, absl::Time ended) {
  v1::StageSpan span;
  span.set_step(StepOf(stage.request));
  span.set_op(StageName(stage.request));
  span.set_stage(stage.request.has_dataflow() ? stage.request.dataflow().stage() : span.op());
  if (flow.pools.empty()) span.add_pools(kOnlyPool);
  for (const Pool& pool : flow.pools) {
    if (RunsOn(stage, pool)) span.add_pools(pool.name);
  }
  span.set_beside(stage.request.dataflow().beside());
  *span.mutable_begin_time() = ToTimestamp(began);
  *span.mutable_end_time() = ToTimestamp(ended);
  return span;
}

}  // namespace sluice::controller
