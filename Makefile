# quern: make, make check, make install.  Sources are found by wildcard, flags go by folder:
# no edit is needed here to add a file.
#   make BUILD=build-asan SANITIZE=address,undefined check      another build beside the first
#   make WERROR=1 CC=clang                                       warnings are errors; another compiler
#   make V=1                                                     shows the commands
#   make CUDA=0                                                  without NVIDIA's GPUs
#   make DEVICE_ARCHS=90a                                        device code for one architecture

, := ,
VERSION := $(shell sed -n 's/^.define QRN_VERSION_STRING "\(.*\)"/\1/p' include/quern/version.h)
SOVERSION := 0

BUILD ?= build
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
DESTDIR ?=
PKG_CONFIG ?= pkg-config
CFLAGS ?= -O2 -g
# Sanitized kernels, which need not be fast themselves, compile five times as fast so: an address that is
# NULL or too far away is the address sanitizer's matter.  What is fuzzed is not in the kernels.
OPT.backends ?= $(if $(SANITIZE),-O1 $(LIGHT_SANITIZE),-O3)
LIGHT_SANITIZE := $(if $(FUZZER),-fno-sanitize=all,$(if $(findstring undefined,$(SANITIZE)),-fno-sanitize=null$(,)pointer-overflow$(,)object-size))

TARGET := $(shell $(CC) -dumpmachine)
# The library needs libutf8proc alone; the command and the tests read JSON with jansson.
DEPS_CFLAGS := $(shell $(PKG_CONFIG) --cflags libutf8proc jansson)
LIBS := $(shell $(PKG_CONFIG) --libs libutf8proc) -lm -pthread
TOOL_LIBS := $(shell $(PKG_CONFIG) --libs jansson)
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wcast-qual -Wvla -Wstrict-prototypes \
        -Wmissing-prototypes -Wwrite-strings -Wpointer-arith -Wno-missing-field-initializers
# No contraction: an FMA happens where it is written, in every build.
QRN_CFLAGS := -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -fPIC -fvisibility=hidden -ffp-contract=off \
              -fno-math-errno -pthread $(WARN) $(DEPS_CFLAGS) -MMD -MP
# GPUs: where the toolkit is.  At run time the driver's library is opened if it is there.
NVCC ?= $(firstword $(shell command -v nvcc 2> /dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA ?= $(if $(NVCC),1,0)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
# Machine code for each, and code that drivers compile for what is newer; files named *_sm90a.cu are for
# that one alone.
DEVICE_ARCHS ?= 80 90a 100
DEVICE_PTX ?= 80
# Device code is the same for all builds.
DEVICE_BUILD ?= build

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-4s %s\n' $(1) $(2))
ifdef WERROR
QRN_CFLAGS += -Werror
endif
ifdef SANITIZE
QRN_CFLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS += -fsanitize=$(SANITIZE)
endif

ifeq ($(CUDA),1)
QRN_CFLAGS += -DQRN_CUDA
LIBS += -ldl
endif

ifdef FUZZER
QRN_CFLAGS += -fsanitize=fuzzer-no-link
endif

# Instruction sets: a folder of src/backends/cpu, its flags, and the machines that have them.
ISA_x86_64 := avx2 avxvnni avx512 avx512vnni avx512bf16 amx
ISA_aarch64 := neon neondot neoni8mm
ISA := $(ISA_$(firstword $(subst -, ,$(TARGET))))
FLAGS.avx2 := -mavx2 -mfma -mf16c
FLAGS.avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
FLAGS.avx512vnni := $(FLAGS.avx512) -mavx512vnni
FLAGS.avx512bf16 := $(FLAGS.avx512) -mavx512bf16
FLAGS.avxvnni := $(FLAGS.avx2) -mavxvnni
FLAGS.amx := $(FLAGS.avx512vnni) -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16
FLAGS.neon :=
FLAGS.neondot := -march=armv8.2-a+dotprod
FLAGS.neoni8mm := -march=armv8.2-a+dotprod+i8mm

LIB_DIRS := base core formats ops text model model/* backends backends/cpu backends/cpu/generic \
            $(ISA:%=backends/cpu/%)
LIB_SRCS := $(sort $(foreach d,$(LIB_DIRS),$(wildcard src/$(d)/*.c)))
LIB_OBJS := $(LIB_SRCS:%.c=$(BUILD)/%.o)
ifeq ($(CUDA),1)
LIB_SRCS += $(wildcard src/backends/cuda/*.c)
DEVICE_SRCS := $(wildcard src/backends/cuda/device/*.cu)
LIB_OBJS := $(LIB_SRCS:%.c=$(BUILD)/%.o) $(DEVICE_SRCS:%.cu=$(BUILD)/%.o)
endif
TOOL_OBJS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/*.c tools/*/*.c))
SUPPORT_OBJS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/support/*.c))
TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/*/test_*.c))
FUZZERS := $(patsubst fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard fuzz/fuzz_*.c))
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))

all: $(BUILD)/libquern.a $(BUILD)/libquern.so $(BUILD)/quern $(EXAMPLES)

$(BUILD)/src/backends/%.o: QRN_CFLAGS += $(OPT.backends) -DQRN_ISA_$(firstword $(subst -, ,$(TARGET)))
$(foreach i,$(ISA),$(eval $(BUILD)/src/backends/cpu/$(i)/%.o: QRN_CFLAGS += $(FLAGS.$(i))))

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS) $(QRN_CFLAGS) $(CPPFLAGS) -c $< -o $@

# Device code: a fat binary for each file, put into an object as it is.  What ptxas says of registers
# and spills stays beside it (scripts/check_spills.sh).  FMA is where it is written; subnormals are 0.
NVCCFLAGS = -std=c++17 -O3 -fmad=false -ftz=true -Xfatbin=-compress-all -Iinclude -Isrc -Xptxas -v \
    $(foreach a,$(DEVICE_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
    $(foreach a,$(DEVICE_PTX),-gencode arch=compute_$(a),code=compute_$(a))
$(DEVICE_BUILD)/%_sm90a.fatbin: DEVICE_ARCHS = 90a
$(DEVICE_BUILD)/%_sm90a.fatbin: DEVICE_PTX =
$(BUILD)/src/backends/cuda/%.o: QRN_CFLAGS += -isystem $(CUDA_HOME)/include
$(DEVICE_BUILD)/%.fatbin: %.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$@)
	$(Q)$(NVCC) $(NVCCFLAGS) -MD -MP -MT $@ -MF $(@:%=%.d) -fatbin -o $@ $< > $@.log 2>&1 || { cat $@.log; exit 1; }
$(BUILD)/%.S: $(DEVICE_BUILD)/%.fatbin
	@mkdir -p $(@D)
	$(Q)printf '.section .rodata\n.balign 64\n.globl %s\n.hidden %s\n%s:\n.incbin "%s"\n%s\n' \
	    $(foreach i,1 2 3,qrn_cuda_image_$(*F)) $< '.section .note.GNU-stack,"",%progbits' > $@
$(BUILD)/src/backends/cuda/device/%.o: $(BUILD)/src/backends/cuda/device/%.S
	$(Q)$(CC) -c -o $@ $<
# The emulator's own test has device code too, which a real GPU can run.
$(DEVICE_BUILD)/tests/emulator/%.fatbin: NVCCFLAGS += -Itests
$(BUILD)/tests/emulator/%_image.o: $(BUILD)/tests/emulator/%.S
	$(Q)$(CC) -c -o $@ $<

# A driver library without a GPU, with the same device code compiled for the CPU; one for all builds but
# those with sanitizers that it can bear, where compiling takes longer than running.  A thread sanitizer
# would want to be told of every switch of stacks.
EMULATOR_SANITIZE := $(if $(filter-out thread,$(SANITIZE)),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all $(LIGHT_SANITIZE))
EMULATOR := $(if $(EMULATOR_SANITIZE),$(BUILD),$(DEVICE_BUILD))/tests/emulator
EMULATOR_OBJS := $(patsubst tests/%.c,$(EMULATOR:%/emulator=%)/%.o,$(filter-out %/incomplete.c %/cublaslt.c %/cublaslt_abi.c tests/emulator/test_%.c,$(wildcard tests/emulator/*.c))) \
    $(patsubst src/backends/cuda/device/%.cu,$(EMULATOR)/device/%.o,$(DEVICE_SRCS)) \
    $(patsubst tests/%.cu,$(EMULATOR:%/emulator=%)/%.o,$(wildcard tests/emulator/*.cu))
EMULATOR_CXXFLAGS = -std=c++17 $(if $(EMULATOR_SANITIZE),-O0,-O2) -g -fPIC -ffp-contract=off -fno-math-errno -Wall -Wextra \
    -Wno-missing-field-initializers -Wno-unknown-pragmas -Wno-unused-function -fno-strict-aliasing \
    -Iinclude -Isrc -Itests -include tests/emulator/cuda_on_cpu.h -DQRN_EMULATED -MMD -MP \
    $(if $(WERROR),-Werror) $(EMULATOR_SANITIZE)
$(EMULATOR)/%.o: tests/emulator/%.c
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(CFLAGS) $(filter-out -fsanitize=thread,$(QRN_CFLAGS)) -Itests -isystem $(CUDA_HOME)/include -c $< -o $@
$(EMULATOR)/device/%.o: src/backends/cuda/device/%.cu
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(CXX) $(EMULATOR_CXXFLAGS) -x c++ -c $< -o $@
$(EMULATOR)/%.o: tests/emulator/%.cu
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(CXX) $(EMULATOR_CXXFLAGS) -x c++ -c $< -o $@
$(EMULATOR)/libcuda_emulated.so: $(EMULATOR_OBJS)
	$(call say,LD,$@)
	$(Q)$(CXX) $(EMULATOR_SANITIZE) -shared -o $@ $^ -pthread
$(EMULATOR)/libcuda_incomplete.so: $(EMULATOR)/incomplete.o
	$(Q)$(CC) -shared -o $@ $^
# cuBLASLt on it; by its name a program that has loaded it, or looks there, finds it in place of NVIDIA's.
$(EMULATOR)/libcublaslt_emulated.so: $(EMULATOR)/cublaslt.o $(EMULATOR)/cublaslt_abi.o $(EMULATOR)/libcuda_emulated.so
	$(call say,LD,$@)
	$(Q)$(CC) $(EMULATOR_SANITIZE) -shared -Wl,-soname,libcublasLt.so.13 -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) \
	    -L$(EMULATOR) -l:libcuda_emulated.so
EMULATORS := $(if $(filter 1,$(CUDA)),$(patsubst %,$(EMULATOR)/lib%.so,cuda_emulated cuda_incomplete cublaslt_emulated))

# The tests link the archive, so that they reach what the shared library hides.
$(BUILD)/libquern.a: $(LIB_OBJS)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $^

$(BUILD)/libquern.so.$(VERSION): $(LIB_OBJS) src/quern.map
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libquern.so.$(SOVERSION) \
	    -Wl,--version-script=src/quern.map $(if $(SANITIZE),,-Wl,-z,defs) -Wl,--as-needed \
	    -o $@ $(LIB_OBJS) $(LIBS)

$(BUILD)/libquern.so: $(BUILD)/libquern.so.$(VERSION)
	$(Q)ln -sf libquern.so.$(VERSION) $(BUILD)/libquern.so.$(SOVERSION)
	$(Q)ln -sf libquern.so.$(SOVERSION) $@

$(BUILD)/quern: $(TOOL_OBJS) $(BUILD)/libquern.a
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(TOOL_LIBS) $(LIBS)

$(BUILD)/examples/%: examples/%.c $(BUILD)/libquern.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(QRN_CFLAGS) $(LDFLAGS) -o $@ $(filter %.c %.a,$^) $(LIBS)

$(BUILD)/tests/%: tests/%.c $(SUPPORT_OBJS) $(BUILD)/libquern.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(QRN_CFLAGS) -Itests $(LDFLAGS) -o $@ $< $(SUPPORT_OBJS) $(TEST_OBJS) $(BUILD)/libquern.a \
	    -lcmocka $(if $(shell grep -l pcre2 $<),-lpcre2-8) $(TOOL_LIBS) $(LIBS)
$(SUPPORT_OBJS): QRN_CFLAGS += -Itests
$(SUPPORT_OBJS) $(TESTS): QRN_CFLAGS += -DQRN_TEST_EMULATOR='"$(filter %/libcuda_emulated.so,$(EMULATORS))"'
ifeq ($(CUDA),1)
$(BUILD)/tests/emulator/test_emulator $(BUILD)/tests/emulator/test_wgmma: QRN_CFLAGS += -isystem $(CUDA_HOME)/include
EMULATOR_TEST_OBJS := $(patsubst %.cu,$(BUILD)/%_image.o,$(wildcard tests/emulator/*.cu))
$(BUILD)/tests/emulator/test_%: TEST_OBJS := $(EMULATOR_TEST_OBJS)
$(BUILD)/tests/emulator/test_emulator $(BUILD)/tests/emulator/test_wgmma: $(EMULATOR_TEST_OBJS)
endif
# Kernels of AMX on emulated tiles, in place of the library's, for machines without them.
ifneq ($(filter amx,$(ISA)),)
AMX_OBJS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/amx/test_%,$(wildcard tests/amx/*.c)))
$(AMX_OBJS): QRN_CFLAGS += $(OPT.backends) -DQRN_ISA_x86_64 $(FLAGS.amx)
$(BUILD)/tests/amx/test_%: TEST_OBJS := $(AMX_OBJS)
$(patsubst %.c,$(BUILD)/%,$(wildcard tests/amx/test_*.c)): $(AMX_OBJS)
endif

# Fuzz targets: with FUZZER=1 CC=clang real ones (scripts/fuzz.sh), without it programs that replay
# files.
$(BUILD)/fuzz/%: fuzz/%.c $(if $(FUZZER),,fuzz/replay.c) $(BUILD)/libquern.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(QRN_CFLAGS) $(if $(FUZZER),-fsanitize=fuzzer) $(LDFLAGS) -o $@ $(filter %.c %.a,$^) $(LIBS)

# The command writes its own manual page and shell completion.
$(BUILD)/quern.1: $(BUILD)/quern
	$(Q)$< help --man > $@
$(BUILD)/quern.bash $(BUILD)/quern.zsh: $(BUILD)/quern.%: $(BUILD)/quern
	$(Q)$< help --completion $* > $@
DOCS := $(addprefix $(BUILD)/quern.,1 bash zsh)

tests: $(TESTS) $(FUZZERS) $(EMULATORS)

# T="ops/test_matmul model" runs a part; a word matches anywhere in the name.
check: all tests
	scripts/run_tests.sh $(BUILD) $(T)

# Names of places, relative to each other: what is installed may be moved as a whole.
FILLED = sed -e 's|@VERSION@|$(VERSION)|g; s|@SOVERSION@|$(SOVERSION)|g; s|@PREFIX@|$(PREFIX)|g' \
    -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|g' \
    -e "s|@UP_TO_PREFIX@|$$(realpath -m --relative-to=$(LIBDIR)/cmake/quern $(PREFIX))|g"
D := $(DESTDIR)$(PREFIX)
DL := $(DESTDIR)$(LIBDIR)

install: all $(DOCS)
	install -d $(D)/include/quern $(DL)/pkgconfig $(DL)/cmake/quern
	install -m 644 include/quern/*.h $(D)/include/quern
	install -m 644 $(BUILD)/libquern.a $(DL)
	install -m 755 $(BUILD)/libquern.so.$(VERSION) $(DL)
	ln -sf libquern.so.$(VERSION) $(DL)/libquern.so.$(SOVERSION)
	ln -sf libquern.so.$(SOVERSION) $(DL)/libquern.so
	$(FILLED) cmake/quern.pc.in > $(DL)/pkgconfig/quern.pc
	$(FILLED) cmake/quern-config.cmake.in > $(DL)/cmake/quern/quern-config.cmake
	$(FILLED) cmake/quern-config-version.cmake.in > $(DL)/cmake/quern/quern-config-version.cmake
	install -D -m 755 $(BUILD)/quern $(D)/bin/quern
	install -D -m 644 $(BUILD)/quern.1 $(DESTDIR)$(MANDIR)/man1/quern.1
	install -D -m 644 $(BUILD)/quern.bash $(D)/share/bash-completion/completions/quern
	install -D -m 644 $(BUILD)/quern.zsh $(D)/share/zsh/site-functions/_quern
	install -d $(D)/share/quern/models/fairy
	install -m 644 models/fairy/* $(D)/share/quern/models/fairy

clean:
	rm -rf $(BUILD)

.PHONY: all tests check install clean
.SECONDARY:
.DELETE_ON_ERROR:
-include $(shell find $(BUILD) $(DEVICE_BUILD) -name '*.d' 2> /dev/null)
