// Prints the vectors of ../resources/io/situ/client/ketama.txt, as libmemcached 1.1 places keys:
//   c++ -o ketama ketama.cc -lmemcached && ./ketama > ../resources/io/situ/client/ketama.txt
// Each line: the servers, the CRC-32 of the server numbers of 20,000 keys (a byte each), and the first 64.
#include <libmemcached/memcached.h>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

static uint32_t crc32(const std::vector<uint8_t> &bytes) {
  uint32_t crc = 0xffffffff;
  for (uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

static void line(const std::vector<std::string> &servers) {
  memcached_st *memc = memcached_create(nullptr);
  memcached_behavior_set(memc, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
  std::string names;
  for (const auto &server : servers) {
    names += (names.empty() ? "" : ",") + server;
    size_t colon = server.rfind(':');
    if (server[0] == '/') memcached_server_add_unix_socket(memc, server.c_str());
    else memcached_server_add(memc, server.substr(0, colon).c_str(), std::stoi(server.substr(colon + 1)));
  }
  std::vector<uint8_t> places;
  for (int i = 0; i < 20000; i++) {
    std::string key = "key-" + std::to_string(i);
    places.push_back(memcached_generate_hash(memc, key.c_str(), key.size()));
  }
  printf("%s %u ", names.c_str(), crc32(places));
  for (int i = 0; i < 64; i++) printf("%s%u", i ? "," : "", places[i]);
  printf("\n");
  memcached_free(memc);
}

int main() {
  line({"127.0.0.1:11211"});
  line({"10.0.0.1:11211", "10.0.0.2:11212", "cache.example:11213"});
  line({"/run/a.sock", "10.0.0.2:11211"});
  for (int count = 2; count <= 50; count++) {
    std::vector<std::string> servers;
    for (int i = 0; i < count; i++) servers.push_back("192.168.0." + std::to_string(i) + ":" + std::to_string(11210 + i));
    line(servers);
  }
}
