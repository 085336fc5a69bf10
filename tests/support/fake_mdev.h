// SPDX-License-Identifier: Apache-2.0
// Mediated devices of the fake kernel: parents with types, and what writes to `create` and `remove` do.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fake_kernel.h"

namespace ferry::test {

struct FakeVgpuType {
  std::string id;  ///< "nvidia-230"
  std::string name;
  unsigned framebuffer_mib = 0;
  unsigned max_instances = 0;
};

/// The types of a board with 16 GiB, as the virtual node's test module has them.
std::vector<FakeVgpuType> t4_types();
/// Some of a board with 48 GiB, of virtual functions.
std::vector<FakeVgpuType> l40s_types();

/// Keeps everything in the kernel's tree, so that a process which dies leaves what it has done.
class FakeMdev {
 public:
  explicit FakeMdev(FakeKernel& kernel);
  FakeMdev(const FakeMdev&) = delete;
  FakeMdev& operator=(const FakeMdev&) = delete;
  FakeMdev(FakeMdev&&) = delete;
  FakeMdev& operator=(FakeMdev&&) = delete;
  ~FakeMdev() = default;

  /// Makes a function that was added before a parent.
  void add_parent(const std::string& address, const std::vector<FakeVgpuType>& types = t4_types());
  /// The same of each virtual function that a function has or is given later: one vGPU on each, and all
  /// together have one framebuffer.
  void add_vf_parents(const std::string& address, const std::vector<FakeVgpuType>& types = l40s_types());
  /// A vGPU that somebody else makes or removes (not counted as a change).
  void add_device(const std::string& address, const std::string& type_id, const std::string& uuid);

  void remove_device(const std::string& address, const std::string& uuid);

  /// "T4-4Q UUID" of each vGPU on a parent, or on one of its virtual functions, sorted.
  std::vector<std::string> devices_on(const std::string& address) const;

  // Drivers that misbehave.
  bool swallow_creates = false;  ///< `create` succeeds and does nothing
  bool swallow_removes = false;
  bool swallow_params = false;
  bool has_params = true;         ///< its vGPUs have parameters
  bool has_placements = true;     ///< those on virtual functions have places in memory, the first one free
  bool leave_driverless = false;  ///< new devices get no driver and no group
  unsigned hidden_vgpus = 0;      ///< so many fewer can be created than available_instances says

 private:
  int create(const std::string& address, const std::string& type_id, const std::string& value);
  int remove(const std::string& address, const std::string& uuid, const std::string& value);
  int move(const std::string& address, const std::string& uuid, const std::string& value);
  /// Those that are taken on a GPU.
  std::set<unsigned> places_on(const std::string& gpu) const;
  unsigned number(const std::filesystem::path& relative) const;
  void remove_parent(const std::string& address);
  /// The function that the framebuffer is of.
  std::string owner(const std::string& address) const;
  std::vector<std::string> parents_of(const std::string& owner) const;
  /// The vGPUs of a GPU and its virtual functions.
  struct Occupancy {
    unsigned all = 0;
    unsigned framebuffer = 0;  ///< of each
    std::map<std::string, unsigned> on;
  };
  Occupancy occupancy_of(const std::string& gpu) const;
  unsigned available(const Occupancy& present, const std::string& gpu, const std::string& address,
                     const std::string& type_id) const;
  void update_available(const std::string& address);
  std::vector<std::string> uuids_on(const std::string& address) const;
  unsigned free_group() const;

  FakeKernel& kernel_;
  std::map<std::string, std::vector<FakeVgpuType>> of_vfs_;  ///< by physical function
};

}  // namespace ferry::test
