// sluice-bench: figures of the engine on this machine, one line of JSON each.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "common/status_macros.h"
#include "engine/bench/bench_ranks.h"
#include "engine/bench/collective_bench.h"
#include "engine/bench/generate_bench.h"
#include "engine/bench/kernel_bench.h"
#include "engine/bench/model_shapes.h"
#include "engine/bench/train_bench.h"
#include "engine/device/engine_stream.h"
#include "engine/roles/job_options.h"
#include "kernels/matmul/gemm_tuning.h"

namespace sluice::engine {
namespace {

int Report(const absl::Status& status) {
  if (!status.ok()) std::cerr << "sluice-bench: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

absl::Status Prepare(const std::string& device, bool tune, const std::string& tuning_file, kernels::Device* chosen) {
  ASSIGN_OR_RETURN(*chosen, ChooseDevice(device));
  return kernels::SetGemmTuning({.enabled = tune && chosen->is_cuda(), .cache_file = tuning_file});
}

int Main(int argc, char** argv) {
  CLI::App app("Measures the engine on this machine with random data. One line of JSON for each figure.");
  app.require_subcommand(1);
  std::string device = "auto", dtype = "bf16", moments = "fp32", recompute = "selective", tuning_file;
  bool no_tuning = false, no_master_weights = false, no_graphs = false;
  TrainBenchOptions train;
  CLI::App* train_command = app.add_subcommand("train", "Training steps: tokens/s, MFU, memory");
  train_command->add_option("--tokens", train.tokens, "Token slots of a micro-batch")->capture_default_str();
  train_command->add_option("--seq", train.sequence, "Longest sequence")->capture_default_str();
  train_command->add_option("--shortest", train.shortest, "Shortest sequence as a part of the longest; rows are packed")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  train_command->add_option("--accumulate", train.accumulate, "Micro-batches of a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  train_command->add_option("--steps", train.steps, "Steps; the second half is timed")
      ->check(CLI::Range(4, 1000000))
      ->capture_default_str();
  train_command->add_option("--moments", moments, "AdamW's moments")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  train_command->add_flag("--no-master-weights", no_master_weights, "bf16 weights alone, rounded stochastically");
  train_command->add_option("--recompute", recompute, "What the backward computes again")
      ->check(CLI::IsMember({"none", "selective", "full"}))
      ->capture_default_str();
  train_command->add_flag("--deterministic", train.model_options.deterministic,
                          "Attention's backward repeats bit for bit");
  train_command->add_flag("--no-graphs", no_graphs, "Launch every kernel by itself");
  train_command->add_flag("--profile", train.profile, "One more step, kernel by kernel, to standard error");
  int64_t logits_mb = train.model_options.logits_bytes >> 20;
  train_command->add_option("--logits-mib", logits_mb, "Logits held at once")->capture_default_str();

  KernelBenchOptions kernel;
  CLI::App* kernel_command =
      app.add_subcommand("kernels", "Each kernel: GB/s or TFLOP/s, and the part of what the machine gives");
  kernel_command->add_option("--filter", kernel.filter, "Only kernels whose name contains this");

  GenerateBenchOptions generate;
  CLI::App* generate_command = app.add_subcommand("generate", "Answers to prompts: tokens/s, milliseconds a pass");
  generate_command->add_option("--prompts", generate.prompts, "Prompts, all different")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate_command->add_option("--answers", generate.answers, "Answers to each prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate_command->add_option("--prompt", generate.prompt, "Tokens of a prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate_command->add_option("--answer", generate.answer, "Tokens of an answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate_command->add_option("--sequences", generate.sequences, "Answers in a pass, at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate_command->add_option("--temperature", generate.temperature, "0: the most likely token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  generate_command->add_flag("--profile", generate.profile,
                             "Passes of one more run, kernel by kernel, to standard error");
  std::string model = train.model;
  int64_t layers = 0;
  for (CLI::App* command : {train_command, generate_command}) {
    command->add_option("--model", model, "Shape of a published model")
        ->check(CLI::IsMember(ModelShapeNames()))
        ->capture_default_str();
    command->add_option("--layers", layers, "Layers in place of the model's own");
    command->add_option("--dtype", dtype, "Weights and activations")
        ->check(CLI::IsMember({"bf16", "fp32"}))
        ->capture_default_str();
    command->add_option("--device", device, "cuda, cpu or auto")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->capture_default_str();
  }
  for (CLI::App* command : {train_command, generate_command, kernel_command}) {
    command->add_flag("--no-tuning", no_tuning, "Take cuBLASLt's first proposal for each product");
    command->add_option("--tuning-file", tuning_file, "Keep the choices of algorithm in this file");
  }
  int64_t bucket_mb = train.model_options.bucket_bytes >> 20;
  train_command->add_option("--bucket-mib", bucket_mb, "Gradients are summed over GPUs in pieces of this size")
      ->capture_default_str();
  BenchRanks ranks;
  CLI::App* collective_command = app.add_subcommand("collectives", "Sums over several GPUs: microseconds, GB/s");
  for (CLI::App* command : {train_command, collective_command}) {
    command->add_option("--gpus", ranks.gpus, "GPUs of this host, a process each")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    // What the first process tells those it starts.
    command->add_option("--rank", ranks.rank)->group("");
    command->add_option("--rendezvous", ranks.rendezvous)->group("");
  }
  CLI11_PARSE(app, argc, argv);
  if (StartsRanks(ranks)) return Report(RunRanks(ranks, argc, argv));

  kernels::Device chosen;
  if (const absl::Status status =
          Prepare(*train_command || *generate_command ? device : "cuda", !no_tuning, tuning_file, &chosen);
      !status.ok())
    return Report(status);
  if (*kernel_command) {
    kernel.stream = EngineStream(chosen);
    return Report(RunKernelBench(kernel));
  }
  const kernels::DType chosen_dtype = dtype == "bf16" ? kernels::DType::kBFloat16 : kernels::DType::kFloat32;
  if (*generate_command) {
    generate.model = model;
    generate.layers = layers;
    generate.device = chosen;
    generate.dtype = chosen_dtype;
    return Report(RunGenerateBench(generate));
  }
  absl::StatusOr<std::unique_ptr<Communicator>> communicator = Connect(ranks, chosen);
  if (!communicator.ok()) return Report(communicator.status());
  if (*collective_command) return Report(RunCollectiveBench(EngineStream(chosen), **communicator));
  train.device = chosen;
  train.model = model;
  train.layers = layers;
  train.dtype = chosen_dtype;
  train.optimizer_options.moments_dtype = moments == "bf16" ? kernels::DType::kBFloat16 : kernels::DType::kFloat32;
  train.optimizer_options.master_weights = !no_master_weights;
  train.model_options.cuda_graphs = train.optimizer_options.cuda_graphs = !no_graphs;
  train.model_options.logits_bytes = logits_mb << 20;
  train.model_options.bucket_bytes = bucket_mb << 20;
  train.model_options.ranks = ranks.gpus;
  train.model_options.recompute = recompute == "none"   ? Recompute::kNone
                                  : recompute == "full" ? Recompute::kFull
                                                        : Recompute::kSelective;
  return Report(RunTrainBench(train, **communicator));
}

}  // namespace
}  // namespace sluice::engine

int main(int argc, char** argv) { return sluice::engine::Main(argc, argv); }
