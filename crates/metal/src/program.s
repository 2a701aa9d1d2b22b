# Entries of programs in ring 3, and of whatever interrupts the kernel that serves them. All run on the stack of the task that
# was interrupted: a program's entry finds the kernel's stack pointer in the task state (interrupts, exceptions) or by `gs`
# (system calls), and leaves there what `Frame` of quietmm-linux has: general registers, above them those of vectors.

.macro PUSH_ALL
    pushq %rdi
    pushq %rsi
    pushq %rdx
    pushq %rcx
    pushq %rax
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
.endm

.macro POP_ALL
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rax
    popq %rcx
    popq %rdx
    popq %rsi
    popq %rdi
    addq $16, %rsp                      # vector, error
.endm

.section .text.programs, "ax"
.code64
# Exceptions, 16 bytes each; then the interrupts that the machine knows.
.align 16
.global program_exceptions
program_exceptions:
vector = 0
.rept 32
.align 16
    .if (vector != 8) && (vector < 10 || vector > 14) && (vector != 17) && (vector != 21) && (vector != 29) && (vector != 30)
    pushq $0
    .endif
    .byte 0x6a, vector
    jmp program_common
    vector = vector + 1
.endr

.macro PROGRAM_INTERRUPT entry, vector
.align 16
.global \entry
\entry:
    pushq $0
    pushq $\vector
    jmp program_common
.endm
PROGRAM_INTERRUPT program_ipi, 0xf0
PROGRAM_INTERRUPT program_kick, 0xf1
PROGRAM_INTERRUPT program_timer, 0xf2
PROGRAM_INTERRUPT program_spurious, 0xff

# Stack: registers, vector 120, error 128, rip 136, cs 144, flags, rsp, ss; vectors' registers from 176 on.
.align 16
program_common:
    PUSH_ALL
    testb $3, 144(%rsp)
    jz from_kernel
    swapgs
from_program:
    fxsave64 176(%rsp)
    movq %rsp, %rdi
    xorl %ebp, %ebp
    cld
    call on_program
program_return:                         # interrupts are off
    testl %eax, %eax
    jnz program_left
    fxrstor64 176(%rsp)
    POP_ALL
    swapgs
    iretq
from_kernel:
    movq %rsp, %rdi
    movq %rsp, %rbp
    subq $512, %rsp
    andq $-16, %rsp
    fxsave64 (%rsp)
    cld
    call on_kernel
    fxrstor64 (%rsp)
    movq %rbp, %rsp
    POP_ALL
    iretq

# SYSCALL: interrupts are off by the mask; %rcx is where it was called, %r11 the flags. `gs`: the kernel's stack 8, a
# place for the program's 16.
.align 16
.global program_syscall
program_syscall:
    swapgs
    movq %rsp, %gs:16
    movq %gs:8, %rsp
    pushq $0x1b
    pushq %gs:16
    pushq %r11
    pushq $0x23
    pushq %rcx
    pushq %rax
    pushq $256
    PUSH_ALL
    jmp from_program

# Into a program, with all registers of the frame at %rdi. Its entries begin 512 bytes below this stack pointer, which is
# also noted at %rsi (the task's), %rdx (the task state's) and in `gs`. Returns when `on_program` says that it has ended.
# Interrupts are off, before and after.
.global enter_program
enter_program:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $8, %rsp
    leaq -512(%rsp), %rax
    movq %rax, (%rsi)
    movq %rax, (%rdx)
    movq %rax, %gs:8
    leaq -176(%rax), %rsp
    movq %rdi, %rsi
    movq %rsp, %rdi
    movl $86, %ecx
    cld
    rep movsq
    xorl %eax, %eax
    jmp program_return
program_left:
    addq $696, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
