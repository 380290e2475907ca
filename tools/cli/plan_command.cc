// sluice plan: every number that follows from a job, before it runs.

#include <cstdio>
#include <memory>

#include "common/config/file_checks.h"
#include "common/config/model_facts.h"
#include "common/config/plan.h"
#include "common/config/validate.h"
#include "common/status_macros.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_child.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/job_arguments.h"

namespace sluice::cli {
namespace {

struct PlanOptions {
  JobArguments job;
  bool no_data = false;
};

// Reads and tokenises the training files in an engine, as the run would.
absl::StatusOr<DataFacts> MeasureData(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(const auto engine, EngineChild::Start());
  v1::StageRequest request;
  v1::InitializeOp* op = request.mutable_initialize();
  *op->mutable_spec() = spec;
  op->mutable_spec()->mutable_engine()->set_device("cpu");
  op->set_world_size(1);
  op->set_scope(v1::INITIALIZE_SCOPE_DATA);
  ASSIGN_OR_RETURN(const v1::StageResponse response, engine->Run(request));
  const v1::InitializeResult& measured = response.initialize();
  DataFacts facts;
  facts.train_rows = measured.train_rows();
  facts.train_tokens = measured.train_tokens();
  facts.micro_batches_per_epoch = measured.epoch_micro_batches();
  return facts;
}

absl::StatusOr<Plan> PlanJob(const PlanOptions& options) {
  ASSIGN_OR_RETURN(const v1::JobSpec spec, LoadJobArguments(options.job, /*check_files=*/true));
  ASSIGN_OR_RETURN(const JobModels models, ReadJobModels(spec, PosixFileSystem()));
  DataFacts data;
  if (!options.no_data) {
    ASSIGN_OR_RETURN(data, MeasureData(spec));
  }
  JobFacts facts;
  facts.train_rows = data.train_rows;
  RETURN_IF_ERROR(ToStatus(ValidateJobSpec(spec, facts)));
  return MakePlan(spec, models, data);
}

int Run(const PlanOptions& options, Format format) {
  const auto plan = PlanJob(options);
  if (!plan.ok()) return ReportError(plan.status());
  std::fputs(format == Format::kTable ? FormatPlan(*plan).c_str() : (PlanJson(*plan) + "\n").c_str(), stdout);
  return kOk;
}

}  // namespace

void AddPlanCommand(CLI::App& app, const GlobalOptions& global, Action& action) {
  auto* command =
      app.add_subcommand("plan", "Print every number that follows from a job: ranks, batches, steps, rates, memory");
  auto options = std::make_shared<PlanOptions>();
  AddJobArguments(command, &options->job);
  command->add_flag("--no-data", options->no_data, "Do not read the data; numbers that need it are left out");
  command->callback(
      [options, &global, &action] { action = [options, &global] { return Run(*options, global.format); }; });
}

}  // namespace sluice::cli
