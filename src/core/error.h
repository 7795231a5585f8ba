// The one error hierarchy. A message says what was expected, what came, for which name, and what to
// do.
#pragma once

#include <stdexcept>
#include <string>

namespace vitrine {

// Thrown at the library's face; never for programmer errors (those are VITRINE_ASSERT).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// A file, key, option or combination of options that the user can mend.
class ConfigError : public Error {
 public:
  using Error::Error;
};

// Shapes or dtypes that do not fit together.
class ShapeError : public Error {
 public:
  using Error::Error;
};

class DeviceError : public Error {
 public:
  using Error::Error;
};

// A collective that failed or timed out. `missing_rank` is -1 when it is not known.
class CommError : public Error {
 public:
  explicit CommError(const std::string& what, int missing_rank = -1)
      : Error(what), missing_rank_(missing_rank) {}
  int missing_rank() const { return missing_rank_; }

 private:
  int missing_rank_;
};

// Missing, truncated, corrupted or unwritable files.
class IoError : public Error {
 public:
  using Error::Error;
};

class OutOfMemory : public Error {
 public:
  using Error::Error;
};

// NaN or Inf where a finite number is needed.
class NumericError : public Error {
 public:
  using Error::Error;
};

// The process asked to be used in another way (wrong command line): exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace vitrine

#define VITRINE_ASSERT(expression) \
  ((expression) ? (void)0 : ::vitrine::assertion_failed(#expression, __FILE__, __LINE__))
