// The optimizer section of a job as the options of a Schedule.
#pragma once

#include "common/schedule/lr_schedule.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// REQUIRES: `optim` is valid by the table (ValidateJobSpec). wd_incr_style constant uses weight_decay throughout unless
// start or end say otherwise, which Schedule::Create refuses where they differ.
ScheduleOptions ScheduleFromSpec(const v1::OptimSpec& optim);

}  // namespace sluice
