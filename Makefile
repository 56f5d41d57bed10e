# SPDX-License-Identifier: Apache-2.0
# The two commands of the README, and short names for what Meson does.
#
#	make demo     installs what is missing, builds, runs all locks and protocols, shows the results
#	make test     the same for the tests: the suites, once, but for the long ones

BUILD  ?= build
PREFIX ?= /usr/local

.PHONY: help demo test test-all test-rdma test-packages test-arm64 coverage build bench install clean

help:
	@echo 'make demo      install what is missing (Debian), build, run every lock and protocol, show results'
	@echo 'make test      install what is missing (Debian), run the suites once, but for the long ones: a quarter of an hour on two cores'
	@echo 'make test-all  the same, then the models, cut links, processes on networks, failing calls, mutants, clang, the sanitizers, the fuzzers, RDMA and packages: what CI runs, an hour or more'
	@echo 'make test-rdma only the tests on RDMA devices: in a guest, or on VERBENA_VERBS_DEVICE=NAME'
	@echo 'make test-packages  Debian packages: install what makes them, make them, try them in a clean Debian; some minutes'
	@echo 'make test-arm64  for arm64: install what cross-builds and emulates it (Debian), build, run the suites under qemu-user; a quarter of an hour'
	@echo 'make coverage  which lines and branches the tests execute, room by room; half an hour'
	@echo 'make build     build into $(BUILD)/ (change with BUILD=DIR)'
	@echo 'make bench     build and run the micro-benchmarks'
	@echo 'make install   build and install under $(PREFIX) (PREFIX=DIR, DESTDIR=DIR)'
	@echo 'make clean     remove what was built'

demo:
	@BUILD='$(BUILD)' scripts/demo.sh

test:
	@scripts/test.sh quick

test-all:
	@scripts/test.sh all

test-rdma:
	@scripts/test.sh rdma

test-packages:
	@scripts/test.sh debian

test-arm64:
	@scripts/test.sh arm64

coverage:
	@scripts/test.sh coverage

build:
	@scripts/build.sh '$(BUILD)' --prefix='$(PREFIX)'

bench: build
	meson test -C '$(BUILD)' --benchmark --verbose

install: build
	meson install -C '$(BUILD)' --no-rebuild
	@# Programs find a new library in ld.so's cache.
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" != 0 ] || PATH="$$PATH:/sbin" ldconfig

clean:
	rm -rf '$(BUILD)' build-test
