#include "engine/comm/communicator.h"

#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs `body` as each rank of a world, a thread each. Gloo does not care that they are not processes.
void RunWorld(int world_size, const std::string& rendezvous, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      ASSERT_OK_AND_ASSIGN(
          auto communicator,
          Communicator::Create(
              {.rank = rank, .world_size = world_size, .rendezvous = rendezvous, .timeout = absl::Seconds(20)}));
      body(*communicator);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

class CommunicatorTest : public ::testing::TestWithParam<int> {
 protected:
  testing::TempDir dir_;
  std::string rendezvous_ = absl::StrCat("file:", dir_.Join("rendezvous"));
};

TEST_P(CommunicatorTest, SumsMaximaAndGathers) {
  const int world_size = GetParam();
  RunWorld(world_size, rendezvous_, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const float sum = world_size * (world_size + 1) / 2;
    std::vector<float> values = {rank + 1.0f, 10.0f * (rank + 1)};
    ASSERT_OK(communicator.AllReduceSum(kernels::TensorView(values.data(), {2})));
    EXPECT_THAT(values, ElementsAre(sum, 10 * sum));

    std::vector<double> counts = {rank + 1.0};
    ASSERT_OK(communicator.AllReduceSum(absl::MakeSpan(counts)));
    EXPECT_THAT(counts, ElementsAre(sum));
    std::vector<double> largest = {rank + 1.0};
    ASSERT_OK(communicator.AllReduceMax(absl::MakeSpan(largest)));
    EXPECT_THAT(largest, ElementsAre(world_size));

    std::vector<int32_t> mine = {rank, -rank}, all(static_cast<size_t>(2 * world_size), 77);
    if (world_size > 1) {
      const auto size = static_cast<int64_t>(all.size());
      ASSERT_OK(communicator.BeginAllGather(kernels::ConstTensorView(mine.data(), {2}),
                                            kernels::TensorView(all.data(), {size})));
      ASSERT_OK(communicator.Join());
      for (int peer = 0; peer < world_size; ++peer) {
        EXPECT_EQ(all[static_cast<size_t>(2 * peer)], peer);
        EXPECT_EQ(all[static_cast<size_t>(2 * peer + 1)], -peer);
      }
      EXPECT_THAT(communicator.BeginAllGather(kernels::ConstTensorView(mine.data(), {1}),
                                              kernels::TensorView(all.data(), {size})),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the whole world's size")));
    }

    ASSERT_OK_AND_ASSIGN(const auto texts, communicator.AllGather(std::string(rank, 'x')));
    ASSERT_EQ(texts.size(), static_cast<size_t>(world_size));
    for (int peer = 0; peer < world_size; ++peer) EXPECT_EQ(texts[peer], std::string(peer, 'x'));
    ASSERT_OK(communicator.Barrier());
    EXPECT_EQ(communicator.state().sequence, world_size > 1 ? 7 : 5);
    EXPECT_EQ(communicator.state().name, "barrier");
  });
}

TEST_P(CommunicatorTest, BroadcastsPieceByPieceInGroupsOfTheirOwn) {
  const int world_size = GetParam();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      CommunicatorOptions options = {
          .rank = rank, .world_size = world_size, .rendezvous = rendezvous_, .timeout = absl::Seconds(20)};
      ASSERT_OK_AND_ASSIGN(const auto world, Communicator::Create(options));
      // All but rank 0, in the other order.
      options.group = "others";
      options.rank = world_size - 1 - rank;
      options.world_size = world_size - 1;
      std::unique_ptr<Communicator> others;
      if (rank > 0) {
        ASSERT_OK_AND_ASSIGN(others, Communicator::Create(options));
      }
      std::vector<float> values(5, static_cast<float>(rank));
      const kernels::TensorView view(values.data(), {5});
      ASSERT_OK(world->Broadcast(view.Rows(0, 3), 0));
      ASSERT_OK(world->Broadcast(view.Rows(3, 4), world_size - 1));
      EXPECT_THAT(values, ElementsAre(0, 0, 0, world_size - 1, rank));
      if (others != nullptr) {
        ASSERT_OK(others->Broadcast(view.Rows(4, 5), 0));
        EXPECT_EQ(values[4], world_size - 1);
      }
      EXPECT_THAT(world->Broadcast(view, world_size),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a root")));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_P(CommunicatorTest, EveryRankLearnsTheFirstFailure) {
  const int world_size = GetParam();
  RunWorld(world_size, rendezvous_, [&](Communicator& communicator) {
    EXPECT_OK(communicator.Agree(absl::OkStatus()));
    const bool last = communicator.rank() == world_size - 1;
    const absl::Status agreed = communicator.Agree(last ? absl::NotFoundError("no file") : absl::OkStatus());
    EXPECT_THAT(agreed, StatusIs(absl::StatusCode::kNotFound, HasSubstr("no file")));
    if (world_size > 1) {
      EXPECT_THAT(std::string(agreed.message()), HasSubstr(absl::StrCat("rank ", world_size - 1)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, CommunicatorTest, ::testing::Values(1, 2, 3));

TEST(CommunicatorTest, MeetsOverTcp) {
  ASSERT_OK_AND_ASSIGN(auto server, RendezvousServer::Start());
  ASSERT_GT(server->port(), 0);
  RunWorld(2, absl::StrCat("tcp:localhost:", server->port()), [](Communicator& communicator) {
    double one = 1;
    ASSERT_OK(communicator.AllReduceSum(absl::MakeSpan(&one, 1)));
    EXPECT_EQ(one, 2);
  });
}

TEST(CommunicatorTest, AnAbsentPeerIsNamed) {
  testing::TempDir dir;
  EXPECT_THAT(Communicator::Create({.rank = 0,
                                    .world_size = 2,
                                    .rendezvous = absl::StrCat("file:", dir.Join("rendezvous")),
                                    .timeout = absl::Milliseconds(300)}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 0 of 2 could not join its peers at file:")));
  EXPECT_THAT(Communicator::Create({.rank = 0, .world_size = 2, .rendezvous = "udp:x"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("neither file: nor tcp:")));
}

}  // namespace
}  // namespace sluice::engine
