#include "controller/store/sqlite.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::controller {
namespace {

absl::Status ToStatus(int code, sqlite3* database, std::string_view what) {
  const std::string message = absl::StrCat("store: ", std::string(what), ": ",
                                           database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code));
  switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW:
      return absl::OkStatus();
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(message);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

// Binding fails only for an index out of range or no memory; the Step after it then fails too or sees NULL, which every
// column here refuses.
void SqliteStatement::BindInt(int index, int64_t value) { sqlite3_bind_int64(statement_, index, value); }
void SqliteStatement::BindBytes(int index, std::string_view value) {
  sqlite3_bind_blob64(statement_, index, value.empty() ? "" : value.data(), value.size(), SQLITE_TRANSIENT);
}
void SqliteStatement::BindText(int index, std::string_view value) {
  sqlite3_bind_text64(statement_, index, value.empty() ? "" : value.data(), value.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
}
void SqliteStatement::BindNull(int index) { sqlite3_bind_null(statement_, index); }

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ToStatus(code, database_, sqlite3_sql(statement_));
}

int64_t SqliteStatement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

std::string SqliteStatement::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  return bytes == nullptr ? std::string()
                          : std::string(static_cast<const char*>(bytes),
                                        static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

void SqliteStatement::Reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  // Callers serialise access, so SQLite's own mutexes are not needed.
  const int code =
      sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  auto database = std::unique_ptr<SqliteDatabase>(new SqliteDatabase(handle));
  if (code != SQLITE_OK) return ToStatus(code, handle, path);
  sqlite3_extended_result_codes(handle, 1);
  return database;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(database_); }

absl::Status SqliteDatabase::Execute(const std::string& sql) {
  return ToStatus(sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr), database_, sql);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(database_, sql.c_str(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                      &statement, nullptr);
  if (code != SQLITE_OK) return ToStatus(code, database_, sql);
  return SqliteStatement(database_, statement);
}

int64_t SqliteDatabase::LastInsertId() const { return sqlite3_last_insert_rowid(database_); }

}  // namespace sluice::controller
