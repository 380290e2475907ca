// How long the driver of an attempt waits for what.
#pragma once

#include "absl/time/time.h"
#include "controller/scheduler/restart_backoff.h"

namespace sluice::controller {

struct AttemptOptions {
  // Longest answer to each call. A worker that is lost ends its calls sooner; these only bound a daemon that lives and
  // hangs.
  absl::Duration start_timeout = absl::Minutes(5);
  absl::Duration initialize_timeout = absl::Hours(12);  // loads the model and tokenises the data where it is not cached
  absl::Duration train_timeout = absl::Hours(2);
  absl::Duration infer_timeout = absl::Hours(12);
  absl::Duration save_timeout = absl::Hours(2);
  absl::Duration export_timeout = absl::Hours(2);

  // Between asking engines to end and killing them.
  absl::Duration cancel_grace = absl::Seconds(10);
  absl::Duration failure_grace =
      absl::Seconds(3);  // peers of a failed rank hang in a collective: asking is of little use
  absl::Duration success_grace = absl::Seconds(30);
  // On top of the grace until a worker must have answered StopAttempt, and between two tries.
  absl::Duration stop_margin = absl::Seconds(15);
  absl::Duration stop_retry = absl::Seconds(1);

  // After the first failure of a gang, how long the other ranks' answers are awaited: the first to fail is often not
  // the cause.
  absl::Duration settle = absl::Seconds(2);
  // A cancel lets a running save end, but not longer than this.
  absl::Duration cancel_save_limit = absl::Minutes(2);

  // Between the loss of an attempt and the next.
  RestartBackoff backoff;
};

}  // namespace sluice::controller
