// A full disk is an error that says so, and leaves the last good checkpoint.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "core/error.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

void save(const std::string& folder, int64_t step, const std::vector<float>& values) {
  CheckpointWriter writer(folder, step, 0, 1);
  const auto count = static_cast<int64_t>(values.size());
  writer.add("w", StateKind::kMaster, {count}, DType::kF32, 0, count, values.data());
  writer.commit({writer.finish_rank()}, Json::object());
}

TEST(DiskFull, LeavesTheLastGoodCheckpointAndSaysWhatToDo) {
  const TemporaryFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root";
  }
  const std::vector<float> small(1000, 1.5f), large(1000000, 2.5f);
  std::string message;
  int64_t step = -1;
  try {
    save(folder.path(), 1, small);
    save(folder.path(), 2, large);
  } catch (const IoError& error) {
    message = error.what();
  }
  try {
    step = CheckpointReader::open(folder.path()).step();
    save(folder.path(), 3, small);  // the leftovers have given their room back
    EXPECT_EQ(CheckpointReader::open(folder.path()).step(), 3);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  umount2(folder.path().c_str(), MNT_DETACH);
  EXPECT_EQ(step, 1);
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_NE(message.find("free space"), std::string::npos) << message;
}

TEST(DiskFull, AFileLimitIsAnErrorAndLeavesNoFile) {
  const TemporaryFolder folder;
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tiny{1000, old.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tiny);
  std::string message;
  try {
    DurableFile file(folder / "f");
    const std::vector<std::byte> bytes(5000);
    file.write(bytes);
  } catch (const IoError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_NE(message.find("after 1000 B"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

}  // namespace
}  // namespace vitrine
