#include "collective/mpi/mpi_world.h"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "collective/mpi/mpi_group.h"

namespace headroom {
namespace {

// The bytes of one transfer: MPI counts with int, and 16 MiB reach the full speed of any transport.
constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr int64_t kPieceFloats = kPieceBytes / static_cast<int64_t>(sizeof(float));

// MPI works on these, never on the caller's memory: after a failure it may still move bytes in the background
// while the caller has its memory back.
struct MpiBuffers {
  std::vector<float> values;  // this rank's values, then the sums
  std::vector<float> parts;   // every rank's values for this rank's part of the elements
};

struct MpiMember {
  MpiMember(std::chrono::milliseconds timeout, std::vector<std::string> names)
      : group(timeout, std::move(names)) {}
  MpiGroup group;
  MpiBuffers buffers;
};

class MpiCollective final : public Collective {
 public:
  explicit MpiCollective(MpiMember& member) : group_(member.group), buffers_(member.buffers) {}
  ~MpiCollective() override { group_.leave(); }
  MpiCollective(const MpiCollective&) = delete;
  MpiCollective& operator=(const MpiCollective&) = delete;

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void all_reduce_sum(std::span<float> values) override {
    group_.meet({CollectiveCall::Kind::kAllReduceSum, std::ssize(values)});
    if (size() == 1) return;
    for (size_t begin = 0; begin < values.size(); begin += kPieceFloats) {
      sum_piece(values.subspan(begin, std::min<size_t>(kPieceFloats, values.size() - begin)));
    }
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    check_root(root, size());
    group_.meet({CollectiveCall::Kind::kBroadcast, std::ssize(bytes), root});
    for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
      send_piece(bytes.subspan(begin, std::min<size_t>(kPieceBytes, bytes.size() - begin)), root);
    }
  }

  void barrier() override {
    group_.meet({});
    MPI_Request request = MPI_REQUEST_NULL;
    group_.check(MPI_Ibarrier(group_.communicator(), &request));
    group_.wait(request);
  }

 private:
  // MPI_Allreduce promises neither an order of its sums nor the same bits on all ranks (MPI 4.0, 6.9.1, only
  // recommends them). So each rank gets its part of the elements from all ranks, sums it in rank order, and
  // the parts are gathered: two transfers of MPI's, and as many bytes as its ring all-reduce moves.
  void sum_piece(std::span<float> values) {
    const int64_t count = std::ssize(values);
    std::vector<int> counts(size()), begins(size()), part_counts(size()), part_begins(size());
    const auto begin_of = [&](int rank) { return static_cast<int>(count * rank / size()); };
    const int own = begin_of(rank() + 1) - begin_of(rank());
    for (int rank = 0; rank < size(); ++rank) {
      begins[rank] = begin_of(rank);
      counts[rank] = begin_of(rank + 1) - begins[rank];
      part_counts[rank] = own;
      part_begins[rank] = own * rank;
    }
    // Never shrunk: a failed transfer may still use them.
    if (std::ssize(buffers_.values) < count) buffers_.values.resize(count);
    if (std::ssize(buffers_.parts) < int64_t{own} * size()) buffers_.parts.resize(int64_t{own} * size());
    float* const all = buffers_.values.data();
    const float* const parts = buffers_.parts.data();
    std::copy(values.begin(), values.end(), all);

    MPI_Request request = MPI_REQUEST_NULL;
    group_.check(MPI_Ialltoallv(all, counts.data(), begins.data(), MPI_FLOAT, buffers_.parts.data(),
                                part_counts.data(), part_begins.data(), MPI_FLOAT, group_.communicator(),
                                &request));
    group_.wait(request);
    float* const sums = all + begins[rank()];
    std::copy_n(parts, own, sums);
    for (int other = 1; other < size(); ++other) {
      const float* const part = parts + part_begins[other];
      for (int i = 0; i < own; ++i) sums[i] += part[i];
    }
    group_.check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, counts.data(), begins.data(),
                                 MPI_FLOAT, group_.communicator(), &request));
    group_.wait(request);
    std::copy_n(all, count, values.begin());
  }

  void send_piece(std::span<std::byte> bytes, int root) {
    const size_t floats = (bytes.size() + sizeof(float) - 1) / sizeof(float);
    if (buffers_.values.size() < floats) buffers_.values.resize(floats);
    if (rank() == root) std::memcpy(buffers_.values.data(), bytes.data(), bytes.size());
    MPI_Request request = MPI_REQUEST_NULL;
    group_.check(MPI_Ibcast(buffers_.values.data(), static_cast<int>(bytes.size()), MPI_BYTE, root,
                            group_.communicator(), &request));
    group_.wait(request);
    if (rank() != root) std::memcpy(bytes.data(), buffers_.values.data(), bytes.size());
  }

  MpiGroup& group_;
  MpiBuffers& buffers_;
};

bool has_all_ranks_on_this_host() {
  const char* const ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  return ranks != nullptr && here != nullptr && std::string_view(ranks) == here;
}

// OpenMPI would listen at a TCP port on every address, and a stranger who connects there can hang the job.
// Ranks of one host need only shared memory; the user's settings stay.
void keep_to_shared_memory() {
  if (!has_all_ranks_on_this_host()) return;
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  // Version 5 has renamed it.
  const bool is_version_4 = std::string_view(version).starts_with("Open MPI v4");
  setenv("OMPI_MCA_btl", is_version_4 ? "self,vader" : "self,sm", 0);
}

class RunningMpiWorld final : public MpiWorld {
 public:
  RunningMpiWorld() {
    keep_to_shared_memory();
    int provided = 0;
    // One thread at a time makes the calls of a collective.
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_SERIALIZED) {
      throw LibraryError("MPI does not start with calls from one thread after the other", "MPI_Init_thread",
                         "MPI_ERR_OTHER", {});
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &local_rank_);
    MPI_Comm_free(&host);
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    MPI_Get_processor_name(name, &length);
    host_.assign(name, static_cast<size_t>(length));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  const std::string& host() const override { return host_; }

  std::unique_ptr<Collective> make_collective(std::chrono::milliseconds timeout,
                                              std::vector<std::string> names) override {
    check_collective_timeout(timeout);
    return std::make_unique<MpiCollective>(members_.emplace_back(timeout, std::move(names)));
  }

  void finish() override {
    for (MpiMember& member : members_) member.group.finish();
    members_.clear();
    MPI_Finalize();
  }

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0;
  std::string host_;
  std::deque<MpiMember> members_;  // keeps memory that MPI may still use
};

}  // namespace

std::unique_ptr<MpiWorld> join_mpi_world() {
  return std::make_unique<RunningMpiWorld>();
}

}  // namespace headroom
