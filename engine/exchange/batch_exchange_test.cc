#include <arrow/api.h>

#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "engine/exchange/batch_service.h"
#include "engine/exchange/batch_store.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kTimeout = absl::Seconds(20);

// Two rows for each of these places, with a text and a list each.
std::shared_ptr<arrow::RecordBatch> Batch(const std::vector<int64_t>& places, size_t text_bytes = 3) {
  arrow::Int64Builder place;
  arrow::StringBuilder text;
  arrow::ListBuilder list(arrow::default_memory_pool(), std::make_shared<arrow::FloatBuilder>());
  for (const int64_t value : places) {
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(place.Append(value).ok());
      EXPECT_TRUE(text.Append(std::string(text_bytes, static_cast<char>('a' + value))).ok());
      EXPECT_TRUE(list.Append().ok());
      for (int64_t n = 0; n < value; ++n) {
        EXPECT_TRUE(static_cast<arrow::FloatBuilder*>(list.value_builder())->Append(0.5f).ok());
      }
    }
  }
  const auto metadata = arrow::key_value_metadata({{"op", "generate"}});
  return arrow::RecordBatch::Make(
      arrow::schema({arrow::field(kPlaceColumn, arrow::int64()), arrow::field("text", arrow::utf8()),
                     arrow::field("list", arrow::list(arrow::float32()))},
                    metadata),
      static_cast<int64_t>(places.size()) * 2, {*place.Finish(), *text.Finish(), *list.Finish()});
}

std::vector<int64_t> PlacesOf(const arrow::RecordBatch& batch) {
  const auto& places = static_cast<const arrow::Int64Array&>(*batch.GetColumnByName(kPlaceColumn));
  std::vector<int64_t> out;
  for (int64_t row = 0; row < places.length(); ++row) out.push_back(places.Value(row));
  return out;
}

TEST(BatchStoreTest, EachReaderHasItsPartAndTheLastTakesTheBatchAway) {
  FakeClock clock;
  BatchStore store(&clock, absl::Hours(1));
  const std::string id = store.Keep(1, Batch({0, 1, 2, 3, 5}), /*readers=*/2);
  ASSERT_OK_AND_ASSIGN(const auto even, store.Take(id, {.part = 0, .parts = 2, .places = {}}));
  EXPECT_THAT(PlacesOf(*even), ElementsAre(0, 0, 2, 2));
  EXPECT_EQ(store.size(), 1);
  ASSERT_OK_AND_ASSIGN(const auto odd, store.Take(id, {.part = 1, .parts = 2, .places = {}}));
  EXPECT_THAT(PlacesOf(*odd), ElementsAre(1, 1, 3, 3, 5, 5));
  EXPECT_EQ(store.size(), 0);
  EXPECT_THAT(store.Take(id, {.part = 1, .parts = 2, .places = {}}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not kept any more")));
}

TEST(BatchStoreTest, APartMayBeEmpty) {
  FakeClock clock;
  BatchStore store(&clock, absl::Hours(1));
  const std::string id = store.Keep(1, Batch({0, 3}), 3);
  ASSERT_OK_AND_ASSIGN(const auto none, store.Take(id, {.part = 1, .parts = 3, .places = {}}));
  EXPECT_THAT(PlacesOf(*none), IsEmpty());
  EXPECT_THAT(store.Take(id, {.part = 3, .parts = 3, .places = {}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no part 3")));
}

TEST(BatchStoreTest, AReaderMayNameThePlacesItWants) {
  FakeClock clock;
  BatchStore store(&clock, absl::Hours(1));
  const std::string id = store.Keep(1, Batch({0, 1, 2, 5}), 3);
  ASSERT_OK_AND_ASSIGN(const auto some, store.Take(id, {.part = 0, .parts = 0, .places = {1, 3, 5}}));
  EXPECT_THAT(PlacesOf(*some), ElementsAre(1, 1, 5, 5));
  EXPECT_EQ(some->schema()->metadata()->Get("op").ValueOrDie(), "generate");
  ASSERT_OK_AND_ASSIGN(const auto none, store.Take(id, {.part = 0, .parts = 0, .places = {}}));
  EXPECT_THAT(PlacesOf(*none), IsEmpty());
  EXPECT_THAT(store.Take(id, {.part = 0, .parts = -1, .places = {}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("there is no part 0 of -1")));
  EXPECT_EQ(store.size(), 1) << "who asks for what cannot be had nothing";
}

TEST(BatchStoreTest, WhatNobodyFetchesGoesWithItsLeaseOrItsStep) {
  FakeClock clock;
  BatchStore store(&clock, absl::Hours(1));
  const std::string first = store.Keep(1, Batch({0}), 1);
  clock.Advance(absl::Minutes(59));
  store.Keep(2, Batch({0}), 1);
  EXPECT_EQ(store.size(), 2);
  clock.Advance(absl::Minutes(1));
  EXPECT_THAT(store.Take(first, {.part = 0, .parts = 1, .places = {}}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not kept any more")));
  EXPECT_EQ(store.size(), 1);
  store.DropBefore(2);
  EXPECT_EQ(store.size(), 1);
  store.DropBefore(3);
  EXPECT_EQ(store.size(), 0);
}

TEST(BatchServiceTest, ABatchComesWhole) {
  RealClock clock;
  BatchStore store(&clock, absl::Hours(1));
  ASSERT_OK_AND_ASSIGN(const auto server, BatchServer::Start("127.0.0.1", &store));
  // Larger than a piece.
  const auto batch = Batch({0, 1, 2, 3}, 700'000);
  const std::string id = store.Keep(1, batch, 3);
  ASSERT_OK_AND_ASSIGN(const FetchedBatch named,
                       FetchBatch(server->address(), id, {.part = 0, .parts = 0, .places = {2}}, kTimeout));
  EXPECT_THAT(PlacesOf(*named.batch), ElementsAre(2, 2));
  ASSERT_OK_AND_ASSIGN(const FetchedBatch all,
                       FetchBatch(server->address(), id, {.part = 0, .parts = 1, .places = {}}, kTimeout));
  EXPECT_TRUE(all.batch->Equals(*batch));
  EXPECT_EQ(all.batch->schema()->metadata()->Get("op").ValueOrDie(), "generate");
  EXPECT_GT(all.bytes, 8 * 700'000);
  ASSERT_OK_AND_ASSIGN(const FetchedBatch some,
                       FetchBatch(server->address(), id, {.part = 1, .parts = 2, .places = {}}, kTimeout));
  EXPECT_THAT(PlacesOf(*some.batch), ElementsAre(1, 1, 3, 3));
  EXPECT_THAT(FetchBatch(server->address(), id, {.part = 1, .parts = 2, .places = {}}, kTimeout).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not kept any more")));
  EXPECT_THAT(FetchBatch(server->address(), "batch-0", {.part = 0, .parts = 1, .places = {}}, kTimeout).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not kept any more")));
}

TEST(BatchServiceTest, AnOwnerThatIsGoneIsNamed) {
  RealClock clock;
  BatchStore store(&clock, absl::Hours(1));
  std::string address;
  {
    ASSERT_OK_AND_ASSIGN(const auto server, BatchServer::Start("127.0.0.1", &store));
    address = server->address();
  }
  EXPECT_THAT(FetchBatch(address, "batch-0", {.part = 0, .parts = 1, .places = {}}, kTimeout).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr(address)));
}

}  // namespace
}  // namespace sluice::engine
