// A thin wrapper of SQLite's C interface: a database and its statements, with Status instead of codes.
// Threads: a database and its statements are used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sluice::controller {

// A prepared statement. Bind, then Step until it says false, read columns between. Reset before the next use.
class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&&) = delete;
  ~SqliteStatement();

  // Parameters count from 1. Bytes are copied.
  void BindInt(int index, int64_t value);
  void BindBytes(int index, std::string_view value);
  void BindText(int index, std::string_view value);
  void BindNull(int index);

  // True: there is a row. False: done.
  absl::StatusOr<bool> Step();

  // Columns count from 0. REQUIRES: the last Step said true.
  int64_t Int(int column) const;
  std::string Bytes(int column) const;

  // Ends the execution and forgets what was bound.
  void Reset();

 private:
  friend class SqliteDatabase;
  SqliteStatement(sqlite3* database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}

  sqlite3* database_;
  sqlite3_stmt* statement_;
};

class SqliteDatabase {
 public:
  // Opens or creates. ResourceExhausted, Internal or DataLoss as SQLite says.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Runs statements that give no rows.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<SqliteStatement> Prepare(const std::string& sql);
  int64_t LastInsertId() const;

 private:
  explicit SqliteDatabase(sqlite3* database) : database_(database) {}
  sqlite3* database_;
};

}  // namespace sluice::controller
