// The daemons and the command line together: submit, watch, logs, cancel, restarts, addresses in use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

class ClusterTest : public ::testing::Test {
 protected:
  void StartController() {
    controller_ =
        std::make_unique<Daemon>("sluice-controller",
                                 std::vector<std::string>{"--listen", address_, "--state-dir", job_.Path("controller"),
                                                          "--heartbeat-interval", "0.3", "--lease", "5"},
                                 job_.Path("controller.log"));
  }
  void StartWorker() {
    worker_ = std::make_unique<Daemon>(
        "sluice-worker",
        std::vector<std::string>{"--controller", address_, "--id", "w1", "--listen", "unix:" + job_.Path("w.sock"),
                                 "--state-dir", job_.Path("worker"), "--rank-slots", "2"},
        job_.Path("worker.log"));
  }

  // A command against the controller; repeated while nobody answers yet.
  CommandResult Sluice(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--controller", address_});
    CommandResult result;
    for (int i = 0; i < 100; ++i) {
      result = RunSluice(arguments);
      if (result.exit_code != 4) break;
    }
    return result;
  }

  std::string Submit(const std::string& run, const std::vector<std::string>& overrides = {},
                     const std::vector<std::string>& flags = {}) {
    std::vector<std::string> arguments = {"submit"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const std::vector<std::string> job = job_.Arguments(run, overrides);
    arguments.insert(arguments.end(), job.begin(), job.end());
    const CommandResult result = Sluice(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return std::string(absl::StripTrailingAsciiWhitespace(result.output));
  }

  TinyJob job_;
  const std::string address_ = "unix:" + job_.Path("c.sock");
  std::unique_ptr<Daemon> controller_;
  std::unique_ptr<Daemon> worker_;
};

TEST_F(ClusterTest, SubmitsWatchesAndLists) {
  StartController();
  StartWorker();
  const std::string id = Submit("run", {}, {"--request-id", "once"});
  EXPECT_EQ(Submit("run", {}, {"--request-id", "once"}), id) << "one request id is one job";
  const CommandResult watched = Sluice({"watch", id});
  EXPECT_EQ(watched.exit_code, 0) << watched.output << watched.errors;
  EXPECT_THAT(watched.output, HasSubstr("step 8/8"));
  EXPECT_THAT(watched.output, HasSubstr("SUCCEEDED"));

  const CommandResult got = Sluice({"get", id, "-o", "json"});
  const nlohmann::json job = nlohmann::json::parse(got.output);
  EXPECT_EQ(job["state"], "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job["progress"]["step"], "8");
  EXPECT_EQ(job["output_path"], job_.Path("run/huggingface"));
  EXPECT_THAT(Sluice({"list"}).output, HasSubstr("tiny"));
  EXPECT_THAT(Sluice({"workers"}).output, HasSubstr("w1"));
  const CommandResult timeline = Sluice({"timeline", id, "--trace", job_.Path("trace.json"), "-o", "json"});
  ASSERT_EQ(timeline.exit_code, 0) << timeline.errors;
  EXPECT_EQ(nlohmann::json::parse(timeline.output)["steps"], 8);
  const nlohmann::json trace = nlohmann::json::parse(job_.Contents("trace.json"));
  EXPECT_EQ(std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(),
                          [](const auto& stage) { return stage.value("cat", "") == "train_batch"; }),
            8);
  EXPECT_EQ(Sluice({"timeline", id, "--trace", job_.Path("absent/trace.json")}).exit_code, 2);
  EXPECT_EQ(Sluice({"timeline", "job-999"}).exit_code, 3);
  EXPECT_EQ(Sluice({"get", "job-999"}).exit_code, 3);
  EXPECT_EQ(Sluice({"cancel", id}).exit_code, 2) << "a job that succeeded cannot be cancelled";
}

TEST_F(ClusterTest, SubmitWaitsAndTheExitCodeIsTheJobs) {
  StartController();
  StartWorker();
  std::vector<std::string> arguments = job_.Arguments("run", {"data.train_files=" + job_.Path("absent.jsonl")});
  arguments.insert(arguments.begin(), {"submit", "--wait"});
  const CommandResult failed = Sluice(arguments);
  EXPECT_EQ(failed.exit_code, 2) << failed.output << failed.errors;
  EXPECT_THAT(failed.errors, HasSubstr("absent.jsonl"));
}

TEST_F(ClusterTest, CancelsARunningAndAWaitingJob) {
  StartController();
  StartWorker();
  // Both want both rank slots: the second waits for the first.
  const std::vector<std::string> endless = {"trainer.total_training_steps=100000", "trainer.n_gpus_per_node=2",
                                            "data.train_batch_size=4", "trainer.save_freq=-1"};
  const std::string running = Submit("running", endless);
  const std::string waiting = Submit("waiting", endless);
  EXPECT_THAT(Sluice({"get", waiting}).output, HasSubstr("QUEUED"));
  EXPECT_EQ(Sluice({"cancel", waiting}).exit_code, 0);
  EXPECT_THAT(Sluice({"get", waiting}).output, HasSubstr("CANCELLED"));
  EXPECT_EQ(Sluice({"timeline", running}).exit_code, 0) << "does not wait for the end";
  EXPECT_EQ(Sluice({"cancel", running, "--reason", "enough"}).exit_code, 0);
  const CommandResult watched = Sluice({"watch", running});
  EXPECT_EQ(watched.exit_code, 1);
  EXPECT_THAT(watched.output, HasSubstr("CANCELLED"));
  // The slots are free again.
  EXPECT_EQ(Sluice({"watch", Submit("next")}).exit_code, 0);
}

TEST_F(ClusterTest, LogsAreFollowedToTheEnd) {
  StartController();
  StartWorker();
  const std::string id = Submit(
      "run", {"optim.lr=1e30", "optim.lr_warmup_steps=-1", "optim.clip_grad=0", "trainer.max_nonfinite_steps=2"});
  const CommandResult logs = Sluice({"logs", "-f", id});
  EXPECT_EQ(logs.exit_code, 0) << logs.errors;
  EXPECT_THAT(logs.output, HasSubstr("was skipped: loss or gradient is not finite"));
}

TEST_F(ClusterTest, AKilledControllerLosesNothing) {
  StartController();
  StartWorker();
  const std::string id = Submit("run", {"trainer.total_epochs=30"});
  // Somewhere in the run: after its first checkpoint.
  while (!job_.Exists("run/global_step_2/manifest.json")) {
    ASSERT_EQ(Sluice({"get", id}).exit_code, 0);
  }
  controller_->Signal(SIGKILL);
  controller_->Wait();
  StartController();
  const CommandResult watched = Sluice({"watch", id});
  EXPECT_EQ(watched.exit_code, 0) << watched.output << watched.errors;
  ASSERT_EQ(job_.Run("whole", {"trainer.total_epochs=30"}).exit_code, 0);
  EXPECT_EQ(job_.Contents("run/global_step_120/weights.safetensors"),
            job_.Contents("whole/global_step_120/weights.safetensors"));
}

TEST_F(ClusterTest, AnAddressInUseIsExplained) {
  StartController();
  ASSERT_EQ(Sluice({"list"}).exit_code, 0);
  const CommandResult second =
      RunProgram("sluice-controller", {"--listen", address_, "--state-dir", job_.Path("other")});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.errors, HasSubstr(address_));
  const CommandResult open =
      RunProgram("sluice-controller", {"--listen", "0.0.0.0:0", "--state-dir", job_.Path("other")});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.errors, HasSubstr("--insecure-listen"));
}

TEST_F(ClusterTest, NoControllerIsExplained) {
  const CommandResult result = RunSluice({"--controller", address_, "list"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.errors, HasSubstr("no controller answers at"));
}

}  // namespace
}  // namespace sluice::testing
