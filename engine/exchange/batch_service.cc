#include "engine/exchange/batch_service.h"

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/listen_address.h"
#include "common/status_macros.h"
#include "sluice/v1/engine.grpc.pb.h"

namespace sluice::engine {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

arrow::Result<std::shared_ptr<arrow::Buffer>> ToStream(const arrow::RecordBatch& batch) {
  ARROW_ASSIGN_OR_RAISE(const auto out, arrow::io::BufferOutputStream::Create());
  ARROW_ASSIGN_OR_RAISE(const auto writer, arrow::ipc::MakeStreamWriter(out, batch.schema()));
  ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(batch));
  ARROW_RETURN_NOT_OK(writer->Close());
  return out->Finish();
}

arrow::Result<std::shared_ptr<arrow::RecordBatch>> FromStream(std::string bytes) {
  const auto in = std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(std::move(bytes)));
  ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchStreamReader::Open(in));
  std::shared_ptr<arrow::RecordBatch> batch;
  ARROW_RETURN_NOT_OK(reader->ReadNext(&batch));
  if (batch == nullptr) return arrow::Status::Invalid("the stream has no batch");
  return batch;
}

// Writes the bytes piece by piece.
class PieceWriter : public grpc::ServerWriteReactor<v1::BatchPiece> {
 public:
  explicit PieceWriter(absl::StatusOr<std::shared_ptr<arrow::Buffer>> bytes) {
    if (!bytes.ok()) {
      Finish(ToGrpcStatus(bytes.status()));
      return;
    }
    bytes_ = *std::move(bytes);
    Next();
  }

 private:
  void Next() {
    if (sent_ >= bytes_->size()) {
      Finish(grpc::Status::OK);
      return;
    }
    const int64_t size = std::min(kPieceBytes, bytes_->size() - sent_);
    piece_.set_ipc(bytes_->data() + sent_, static_cast<size_t>(size));
    sent_ += size;
    StartWrite(&piece_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    Next();
  }
  void OnDone() override { delete this; }

  std::shared_ptr<arrow::Buffer> bytes_;
  int64_t sent_ = 0;
  v1::BatchPiece piece_;
};

}  // namespace

class BatchServer::Service : public v1::BatchService::CallbackService {
 public:
  explicit Service(BatchStore* store) : store_(store) {}

  grpc::ServerWriteReactor<v1::BatchPiece>* Fetch(grpc::CallbackServerContext*,
                                                  const v1::FetchBatchRequest* request) override {
    return new PieceWriter([&]() -> absl::StatusOr<std::shared_ptr<arrow::Buffer>> {
      const RowChoice choice = {.part = request->part(),
                                .parts = request->parts(),
                                .places = {request->places().begin(), request->places().end()}};
      ASSIGN_OR_RETURN(const auto batch, store_->Take(request->id(), choice));
      auto bytes = ToStream(*batch);
      if (!bytes.ok()) return absl::InternalError(bytes.status().ToString());
      return *std::move(bytes);
    }());
  }

 private:
  BatchStore* const store_;
};

BatchServer::BatchServer(std::unique_ptr<Service> service, std::unique_ptr<grpc::Server> server, std::string address)
    : service_(std::move(service)), server_(std::move(server)), address_(std::move(address)) {}

BatchServer::~BatchServer() { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

absl::StatusOr<std::unique_ptr<BatchServer>> BatchServer::Start(const std::string& host, BatchStore* store) {
  auto service = std::make_unique<Service>(store);
  grpc::ServerBuilder builder;
  ApplyServerLimits(&builder);
  int port = 0;
  ListenAddress address;
  address.host = host;
  builder.AddListeningPort(FormatAddress(address, 0), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service.get());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot serve batches of samples on ", host));
  }
  return std::unique_ptr<BatchServer>(
      new BatchServer(std::move(service), std::move(server), FormatAddress(address, port)));
}

absl::StatusOr<FetchedBatch> FetchBatch(const std::string& address, const std::string& id, const RowChoice& choice,
                                        absl::Duration timeout) {
  const auto stub = v1::BatchService::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  v1::FetchBatchRequest request;
  request.set_id(id);
  request.set_part(choice.part);
  request.set_parts(choice.parts);
  request.mutable_places()->Add(choice.places.begin(), choice.places.end());
  const auto reader = stub->Fetch(&context, request);
  std::string bytes;
  for (v1::BatchPiece piece; reader->Read(&piece);) bytes += piece.ipc();
  if (const absl::Status status = FromGrpcStatus(reader->Finish()); !status.ok()) {
    if (absl::IsNotFound(status)) return status;
    return absl::AbortedError(absl::StrCat("samples of the engine at ", address, ": ", status.message()));
  }
  FetchedBatch fetched;
  fetched.bytes = static_cast<int64_t>(bytes.size());
  auto batch = FromStream(std::move(bytes));
  if (!batch.ok()) return absl::InternalError(absl::StrCat("samples of ", address, ": ", batch.status().ToString()));
  fetched.batch = *std::move(batch);
  return fetched;
}

}  // namespace sluice::engine
