// When a stage ran, as users see it. Pure.
#pragma once

#include "absl/time/time.h"
#include "controller/dataflow/job_plan.h"
#include "sluice/v1/types.pb.h"

namespace sluice::controller {

v1::StageSpan SpanOf(const FlowPlan& flow, const Stage& stage, absl::Time began, absl::Time ended);

}  // namespace sluice::controller
