"""What methods of symbols in machine code have in common, in LLVM IR: operations and numbers are found, steps noted."""

NOTES = """
define internal i64 @mix(i64 %h, i64 %x) alwaysinline {
  %a = xor i64 %h, %x
  %b = mul i64 %a, $FACTOR
  %c = lshr i64 %b, 29
  %d = xor i64 %b, %c
  ret i64 %d
}

define internal i64 @held(ptr %at, i64 %n) alwaysinline {
  %p = getelementptr i64, ptr %at, i64 %n
  %v = load i64, ptr %p
  ret i64 %v
}

define internal ptr @pointed(ptr %at, i64 %bytes) alwaysinline {
  %p = getelementptr i8, ptr %at, i64 %bytes
  %v = load ptr, ptr %p
  ret ptr %v
}

define internal void @keep(ptr %at, i64 %bytes, ptr %x) alwaysinline {
  %p = getelementptr i8, ptr %at, i64 %bytes
  store ptr %x, ptr %p
  ret void
}

; The entry of a key in the table; null where there is none.
define internal ptr @find(ptr %s, i64 %op, ptr %left, i64 %a, i64 %b, i64 %c) {
  %frame = call ptr @PyEval_GetFrame()
  %none = icmp eq ptr %frame, null
  br i1 %none, label %absent, label %framed
framed:
  %code = call ptr @PyFrame_GetCode(ptr %frame)
  call void @Py_DecRef(ptr %code)
  %short = call i32 @PyFrame_GetLasti(ptr %frame)
  %last = sext i32 %short to i64
  %where = ptrtoint ptr %code to i64
  %type = ptrtoint ptr %left to i64
  %h0 = call i64 @mix(i64 0, i64 %op)
  %h1 = call i64 @mix(i64 %h0, i64 %where)
  %h2 = call i64 @mix(i64 %h1, i64 %last)
  %h3 = call i64 @mix(i64 %h2, i64 %type)
  %h4 = call i64 @mix(i64 %h3, i64 %a)
  %h5 = call i64 @mix(i64 %h4, i64 %b)
  %h6 = call i64 @mix(i64 %h5, i64 %c)
  %table.at = call i64 @held(ptr %s, i64 $N_KEYS_AT)
  %table = inttoptr i64 %table.at to ptr
  %mask = call i64 @held(ptr %s, i64 $N_KEYS)
  br label %look
look:
  %k = phi i64 [ %h6, %framed ], [ %next, %other ]
  %i = and i64 %k, %mask
  %first = mul i64 %i, $ENTRY
  %entry = getelementptr i64, ptr %table, i64 %first
  %k0 = load i64, ptr %entry
  %empty = icmp eq i64 %k0, 0
  br i1 %empty, label %absent, label %compare
compare:
  %k1 = call i64 @held(ptr %entry, i64 1)
  %k2 = call i64 @held(ptr %entry, i64 2)
  %k3 = call i64 @held(ptr %entry, i64 3)
  %k4 = call i64 @held(ptr %entry, i64 4)
  %k5 = call i64 @held(ptr %entry, i64 5)
  %k6 = call i64 @held(ptr %entry, i64 6)
  %x0 = xor i64 %k0, %op
  %x1 = xor i64 %k1, %where
  %x2 = xor i64 %k2, %last
  %x3 = xor i64 %k3, %type
  %x4 = xor i64 %k4, %a
  %x5 = xor i64 %k5, %b
  %x6 = xor i64 %k6, %c
  %o0 = or i64 %x0, %x1
  %o1 = or i64 %x2, %x3
  %o2 = or i64 %x4, %x5
  %o3 = or i64 %o0, %o1
  %o4 = or i64 %o2, %x6
  %differs = or i64 %o3, %o4
  %same = icmp eq i64 %differs, 0
  br i1 %same, label %found, label %other
other:
  %next = add i64 %i, 1
  br label %look
found:
  ret ptr %entry
absent:
  ret ptr null
}

; The word of a number that Python knows; 0 where it is not known here.
define internal i64 @number(ptr %s, i64 %kind, i64 %bits) {
  %h0 = call i64 @mix(i64 0, i64 %kind)
  %h1 = call i64 @mix(i64 %h0, i64 %bits)
  %table.at = call i64 @held(ptr %s, i64 $N_NUMBERS_AT)
  %table = inttoptr i64 %table.at to ptr
  %mask = call i64 @held(ptr %s, i64 $N_NUMBERS)
  br label %look
look:
  %k = phi i64 [ %h1, %0 ], [ %next, %other ]
  %i = and i64 %k, %mask
  %first = mul i64 %i, $NUMBER
  %entry = getelementptr i64, ptr %table, i64 %first
  %k0 = load i64, ptr %entry
  %empty = icmp eq i64 %k0, 0
  br i1 %empty, label %absent, label %compare
compare:
  %k1 = call i64 @held(ptr %entry, i64 1)
  %x0 = xor i64 %k0, %kind
  %x1 = xor i64 %k1, %bits
  %differs = or i64 %x0, %x1
  %same = icmp eq i64 %differs, 0
  br i1 %same, label %found, label %other
other:
  %next = add i64 %i, 1
  br label %look
found:
  %word = call i64 @held(ptr %entry, i64 2)
  ret i64 %word
absent:
  ret i64 0
}

; The word of an int or float; 0 where it is not known here.
define internal i64 @word(ptr %s, ptr %y, ptr %type) {
  %overflow = alloca i32
  %float = call ptr @pointed(ptr %s, i64 $FLOAT_BYTES)
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %a.float, label %no.float
a.float:
  %value = call double @PyFloat_AsDouble(ptr %y)
  %bits = bitcast double %value to i64
  %word = call i64 @number(ptr %s, i64 1, i64 %bits)
  ret i64 %word
no.float:
  %int = call ptr @pointed(ptr %s, i64 $INT_BYTES)
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %an.int, label %absent
an.int:
  store i32 0, ptr %overflow
  %whole = call i64 @PyLong_AsLongLongAndOverflow(ptr %y, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %inside, label %absent
inside:
  %of.int = call i64 @number(ptr %s, i64 2, i64 %whole)
  ret i64 %of.int
absent:
  ret i64 0
}

; Notes a step; its result. Null where an exception is raised, 1 where it is left to Python.
define internal ptr @note(ptr %s, ptr %entry, ptr %run, i64 %w0, i64 %w1, i64 %w2, i64 %count) {
  %site = call i64 @held(ptr %entry, i64 7)
  %type.at = call i64 @held(ptr %entry, i64 8)
  %type = inttoptr i64 %type.at to ptr
  %class = call ptr @pointed(ptr %s, i64 $SYMBOL_BYTES)
  %made = call ptr @PyType_GenericAlloc(ptr %class, i64 0)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %error, label %begun
begun:
  %base = call i64 @held(ptr %s, i64 $N_BASE)
  %most = call i64 @held(ptr %s, i64 $N_MOST)
  %pending = call i64 @held(ptr %s, i64 $N_PENDING)
  %capacity = call i64 @held(ptr %s, i64 $N_CAPACITY)
  %step = add i64 %base, %pending
  %few = icmp slt i64 %step, %most
  %room = icmp slt i64 %pending, %capacity
  %fits = and i1 %few, %room
  br i1 %fits, label %write, label %left
left:
  call void @Py_DecRef(ptr %made)
  ret ptr inttoptr (i64 1 to ptr)
write:
  %fixed = icmp slt i64 %site, 0
  br i1 %fixed, label %finish, label %noted
noted:
  %sites.at = call i64 @held(ptr %s, i64 $N_SITES_AT)
  %sites = inttoptr i64 %sites.at to ptr
  %here = getelementptr i64, ptr %sites, i64 %pending
  store i64 %site, ptr %here
  %words.at = call i64 @held(ptr %s, i64 $N_WORDS_AT)
  %words = inttoptr i64 %words.at to ptr
  %used = call i64 @held(ptr %s, i64 $N_WORDS)
  %first = getelementptr i64, ptr %words, i64 %used
  store i64 %w0, ptr %first
  %second = getelementptr i64, ptr %first, i64 1
  store i64 %w1, ptr %second
  %third = getelementptr i64, ptr %first, i64 2
  store i64 %w2, ptr %third
  %used.now = add i64 %used, %count
  %used.at = getelementptr i64, ptr %s, i64 $N_WORDS
  store i64 %used.now, ptr %used.at
  %pending.now = add i64 %pending, 1
  %pending.at = getelementptr i64, ptr %s, i64 $N_PENDING
  store i64 %pending.now, ptr %pending.at
  %result = shl i64 %step, $OUTS
  br label %finish
finish:
  %word = phi i64 [ -1, %write ], [ %result, %noted ]
  %held.word = call ptr @PyLong_FromLongLong(i64 %word)
  %none = icmp eq ptr %held.word, null
  br i1 %none, label %unmade, label %done
unmade:
  call void @Py_DecRef(ptr %made)
  ret ptr null
done:
  call void @Py_IncRef(ptr %type)
  call void @Py_IncRef(ptr %run)
  call void @keep(ptr %made, i64 $S_KEY, ptr %type)
  call void @keep(ptr %made, i64 $S_RUN, ptr %run)
  call void @keep(ptr %made, i64 $S_WORD, ptr %held.word)
  ret ptr %made
error:
  ret ptr null
}

; What is known of the run of a symbol; null, and an exception, where it is no whole symbol.
define internal ptr @state(ptr %x) {
  %run = call ptr @pointed(ptr %x, i64 $S_RUN)
  %key = call ptr @pointed(ptr %x, i64 $S_KEY)
  %word = call ptr @pointed(ptr %x, i64 $S_WORD)
  %n0 = icmp eq ptr %run, null
  %n1 = icmp eq ptr %key, null
  %n2 = icmp eq ptr %word, null
  %n3 = or i1 %n0, %n1
  %n4 = or i1 %n2, %n3
  br i1 %n4, label %bad, label %whole
whole:
  %address = call ptr @pointed(ptr %run, i64 $R_STATE)
  %n5 = icmp eq ptr %address, null
  br i1 %n5, label %bad, label %known
known:
  %at = call i64 @PyLong_AsLongLong(ptr %address)
  %s = inttoptr i64 %at to ptr
  ret ptr %s
bad:
  call void @PyErr_BadInternalCall()
  ret ptr null
}

; The method in Python.
define internal ptr @left(ptr %s, i64 %op, ptr %x, ptr %y, i64 %count) noinline {
  %args = alloca [2 x ptr]
  store ptr %x, ptr %args
  %second = getelementptr ptr, ptr %args, i64 1
  store ptr %y, ptr %second
  %at = add i64 %op, $N_STATE
  %method.at = call i64 @held(ptr %s, i64 %at)
  %method = inttoptr i64 %method.at to ptr
  %made = call ptr @PyObject_Vectorcall(ptr %method, ptr %args, i64 %count, ptr null)
  ret ptr %made
}
"""
