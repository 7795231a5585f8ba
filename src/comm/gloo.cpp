// Ranks as processes: rendezvous through the store, one Gloo context or shared memory a group and
// lane.
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>

#include "comm/call_checks.h"
#include "comm/gloo_communicator.h"
#include "comm/shared_pipes.h"
#include "core/error.h"
#include "core/format.h"
#include "core/short_slice.h"

namespace vitrine {
namespace {

using std::chrono::milliseconds;

// Gloo's view of the store: the keys of one context.
class GroupStore : public gloo::rendezvous::Store {
 public:
  GroupStore(TcpStoreClient& store, std::string prefix, milliseconds timeout)
      : store_(store), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, {data.begin(), data.end()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) store_.get(prefix_ + key, timeout_);
  }
  // Gloo passes the context's time-out, which is made short for another purpose.
  void wait(const std::vector<std::string>& keys, const milliseconds&) override { wait(keys); }

 private:
  TcpStoreClient& store_;
  const std::string prefix_;
  const milliseconds timeout_;
};

std::string chosen_interface() {
  for (const char* name : {"VITRINE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

std::shared_ptr<gloo::transport::Device> make_device(const RankEnvironment& e) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = chosen_interface();
  try {
    if (attributes.iface.empty()) {
      attributes.hostname = local_address_towards(e.master_address);
      if (e.local_size != e.size && is_loopback(attributes.hostname)) {
        throw ConfigError("rank " + std::to_string(e.rank) + ": MASTER_ADDR '" + e.master_address +
                          "' leads to " + attributes.hostname +
                          " here, which other hosts cannot reach; give an address of the network, "
                          "or name the interface in VITRINE_SOCKET_IFNAME");
      }
    }
    const ShortSlice for_its_thread;
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const gloo::EnforceNotMet& error) {
    throw ConfigError("rank " + std::to_string(e.rank) + " cannot use the network interface '" +
                      (attributes.iface.empty() ? attributes.hostname : attributes.iface) +
                      "' (VITRINE_SOCKET_IFNAME, GLOO_SOCKET_IFNAME): " + error.what());
  }
}

// Hands failures on to a listener.
class Ear : public Abortable {
 public:
  Ear(std::shared_ptr<Control> control, FailureListener tell)
      : control_(std::move(control)), tell_(std::move(tell)) {
    control_->watch(this);
  }
  ~Ear() override { control_->unwatch(this); }
  void fail(const std::string& why, int missing_rank) noexcept override {
    if (!told_.exchange(true)) tell_(why, missing_rank);
  }

 private:
  const std::shared_ptr<Control> control_;
  const FailureListener tell_;
  std::atomic<bool> told_{false};
};

class GlooWorld : public World {
 public:
  GlooWorld(const RankEnvironment& environment, milliseconds timeout, FailureListener tell)
      : environment_(environment),
        timeout_(timeout),
        device_(make_device(environment)),
        control_(std::make_shared<Control>(environment, timeout)) {
    if (tell) ear_ = std::make_unique<Ear>(control_, std::move(tell));
  }

  int rank() const override { return environment_.rank; }
  int size() const override { return environment_.size; }

  std::shared_ptr<Communicator> group(const std::vector<int>& ranks,
                                      const std::string& name) override {
    const int group_rank = check_group(name, ranks, rank(), size());
    std::shared_ptr<gloo::Context> context;
    std::unique_ptr<SharedPipes> pipes;
    if (ranks.size() > 1) {
      const std::string prefix = keys_of(ranks, name);
      pipes = share(prefix, group_rank, ranks, name);
      if (!pipes) context = connect(prefix, ranks, group_rank, name);
    }
    return std::make_shared<GlooCommunicator>(
        std::move(context), std::move(pipes), control_, ranks, group_rank, name, timeout_);
  }

  void abort(const std::string& reason) noexcept override { control_->abort(reason); }
  Suspect suspect() override { return control_->suspect(); }
  void progress(int64_t step, const std::string& what) override { control_->progress(step, what); }

 private:
  // Of one more group of these ranks.
  std::string keys_of(const std::vector<int>& ranks, const std::string& name) {
    std::string prefix = "group/" + name + "/" + members_of(ranks, ",") + "/";
    prefix += std::to_string(made_[prefix]++) + "/";
    return prefix;
  }

  std::unique_ptr<SharedPipes> share(const std::string& prefix,
                                     int group_rank,
                                     const std::vector<int>& ranks,
                                     const std::string& name) {
    const SharedPipes::Store store{
        [&](const std::string& key, const std::string& value) {
          control_->store().set(prefix + key, value);
        },
        [&](const std::string& key) { return control_->store().get(prefix + key, timeout_); }};
    try {
      return SharedPipes::make(store, group_rank, static_cast<int>(ranks.size()));
    } catch (const CommError& error) {
      throw_not_made(ranks, name, error.what());
    }
  }

  std::shared_ptr<gloo::Context> connect(const std::string& prefix,
                                         const std::vector<int>& ranks,
                                         int group_rank,
                                         const std::string& name) {
    auto context =
        std::make_shared<gloo::rendezvous::Context>(group_rank, static_cast<int>(ranks.size()));
    // Gloo waits five times this long for a connection; every other wait is given its own time.
    context->setTimeout(std::max(milliseconds(1), timeout_ / 5));
    GroupStore store(control_->store(), prefix, timeout_);
    try {
      context->connectFullMesh(store, device_);
    } catch (const std::exception& error) {
      throw_not_made(ranks,
                     name,
                     std::string(error.what()) +
                         "); if the hosts have several networks, name the interface in "
                         "VITRINE_SOCKET_IFNAME (GLOO_SOCKET_IFNAME");
    }
    return context;
  }

  [[noreturn]] void throw_not_made(const std::vector<int>& ranks,
                                   const std::string& name,
                                   const std::string& why) {
    const Suspect who = control_->suspect(-1, "the making of group '" + name + "'");
    throw CommError("making group '" + name + "' of ranks " + members_of(ranks, ", ") + ": " +
                        who.sentence + " (" + why + ")",
                    who.rank);
  }

  static std::string members_of(const std::vector<int>& ranks, const std::string& between) {
    std::vector<std::string> members;
    for (const int r : ranks) members.push_back(std::to_string(r));
    return join(members, between);
  }

  const RankEnvironment environment_;
  const milliseconds timeout_;
  // One for all groups: one thread that moves bytes, whichever lane they belong to.
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<Control> control_;
  std::unique_ptr<Ear> ear_;
  std::map<std::string, int> made_;  // groups of the same name and ranks
};

}  // namespace

std::unique_ptr<World> make_gloo_world(const RankEnvironment& environment,
                                       milliseconds timeout,
                                       FailureListener tell) {
  // One rank needs no network, and no port.
  if (environment.size == 1) return std::move(make_local_worlds(1, timeout).front());
  // Gloo writes to sockets whose other end may be gone; that is an error to report, not a signal.
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
  return std::make_unique<GlooWorld>(environment, timeout, std::move(tell));
}

}  // namespace vitrine
