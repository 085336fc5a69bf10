// SPDX-License-Identifier: Apache-2.0
// A stand-in for the kubelet's device manager: the real protocol over real unix sockets, nothing of
// Kubernetes behind it, and nothing of Ferry in it.
//
// It does what a kubelet does: removes the sockets it finds when it starts, checks a registration, dials back
// inside Register, asks for the options, reads one ListAndWatch stream and never reconnects, takes each
// message as the whole list, marks all Unhealthy when the stream ends, gives a device out once. Each
// allocation is a pod of its own; what all of them have is listed on the pod resources socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace standin {

struct Device {
  std::string id;
  bool healthy = false;
  bool has_topology = false;  ///< false: the plugin knows no node
  std::vector<std::int64_t> numa_nodes;
};

struct Resource {
  std::string endpoint;
  bool connected = false;       ///< its list is being read
  bool ended_in_order = false;  ///< once it is not any more: the plugin itself has ended it
  bool preferred_allocation = false;
  bool pre_start_required = false;
  std::map<std::string, Device> devices;
  std::set<std::string> allocated;
  int lists = 0;  ///< messages read since it registered
  std::set<std::string> ever_listed;

  std::size_t capacity() const { return devices.size(); }
  std::size_t allocatable() const;
};
using Resources = std::map<std::string, Resource>;

/// One Register call.
struct Registration {
  std::string version;
  std::string endpoint;
  std::string resource;
  bool preferred_in_request = false;
  std::string error;  ///< what it was answered; empty: taken
};

struct Mapping {
  std::string host_path;
  std::string container_path;
  std::string permissions;  ///< devices only
  bool read_only = false;   ///< mounts only
};

/// What a container would get, or why it does not.
struct Answer {
  int status = 0;  ///< gRPC's; 0: given. -1: the kubelet itself did not ask
  std::string error;
  std::vector<std::string> ids;
  std::map<std::string, std::string> envs;
  std::vector<Mapping> devices;
  std::vector<Mapping> mounts;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> cdi_devices;

  bool ok() const { return status == 0; }
};

/// A container as List tells it; without a resource one that has no devices.
struct Pod {
  std::string name;
  std::string resource;
  std::vector<std::string> ids;
};

struct Options {
  /// As kubelets of 2026 do: the same resource from the same socket is refused while its stream is alive.
  /// Without it the later registration takes over, as in older ones.
  bool refuse_second_registration = false;
  /// The API that it speaks.
  std::string version = "v1beta1";
  /// How long the dial back may take.
  std::chrono::milliseconds dial_limit = std::chrono::seconds(10);
  /// Whether it opens ListAndWatch when it has taken a registration.
  bool reads_lists = true;
  /// Where pods' resources are listed: the directory of another kubelet.sock. Empty: nowhere.
  std::filesystem::path pod_resources = {};
  /// Called inside Register before anything is checked.
  std::function<void()> on_register = {};
  /// Called inside List before the pods are read.
  std::function<void()> on_list = {};
  /// Called, from any thread, with what no plugin may do though a kubelet bears it in silence: of an ID that
  /// one list has twice it keeps the last. Without this such a plugin ends the process.
  std::function<void(const std::string& fault)> on_fault = {};
};

class Kubelet {
 public:
  explicit Kubelet(std::filesystem::path directory, Options options = {});
  Kubelet(const Kubelet&) = delete;
  Kubelet& operator=(const Kubelet&) = delete;
  Kubelet(Kubelet&&) = delete;
  Kubelet& operator=(Kubelet&&) = delete;
  /// As stop().
  ~Kubelet();

  /// Removes every socket in the directory and listens on kubelet.sock, and on that of the pod resources.
  /// False: it cannot listen.
  bool start();
  /// Ends all connections, and kubelet.sock with them.
  void stop();
  /// Makes kubelet.sock anew, as newer kubelets do whose registration server has failed: nothing else goes.
  bool renew_socket();
  /// Drops one plugin's connection as the kubelet does when it wants no more of it; nothing changes on disk.
  void drop(const std::string& resource);

  Resources resources() const;
  std::vector<Registration> registrations() const;

  /// May ask registrations() too.
  using Condition = std::function<bool(const Resources&)>;
  /// Waits for a condition on what is known; false when it did not come true in time.
  bool wait_for(const Condition& condition, std::chrono::milliseconds timeout) const;

  /// Chooses healthy free devices, by the plugin's preference where it has one, and allocates them.
  Answer allocate(const std::string& resource, int count);
  /// Allocates these; with `force` also those that a kubelet would not give.
  Answer allocate(const std::string& resource, const std::vector<std::string>& ids, bool force = false);
  /// What the plugin prefers, unfiltered.
  Answer prefer(const std::string& resource, const std::vector<std::string>& available,
                const std::vector<std::string>& must_include, int size);
  /// A pod of namespace "default" that was given these before this kubelet started: from its checkpoint.
  void remember(Pod pod);
  /// The containers that had these are gone. The plugin does not hear of it: there is no such call.
  void release(const std::vector<std::string>& ids);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Why the kubelet would not take this name; empty when it would.
std::string resource_name_fault(const std::string& name);

}  // namespace standin
