"""The methods of symbols in LLVM IR: operators, parts of arrays, functions of JAX."""

METHODS = """
define internal ptr @binary(ptr %x, ptr %y, i64 %op) {
  %s = call ptr @state(ptr %x)
  %bad = icmp eq ptr %s, null
  br i1 %bad, label %error, label %begin
begin:
  %run = call ptr @pointed(ptr %x, i64 $S_RUN)
  %xkey = call ptr @pointed(ptr %x, i64 $S_KEY)
  %type = call ptr @pointed(ptr %y, i64 $TYPE)
  %symbol = call ptr @pointed(ptr %s, i64 $SYMBOL_BYTES)
  %is.symbol = icmp eq ptr %type, %symbol
  br i1 %is.symbol, label %a.symbol, label %a.number
a.symbol:
  %yrun = call ptr @pointed(ptr %y, i64 $S_RUN)
  %ykey = call ptr @pointed(ptr %y, i64 $S_KEY)
  %yheld = call ptr @pointed(ptr %y, i64 $S_WORD)
  %same = icmp eq ptr %run, %yrun
  br i1 %same, label %of.run, label %slow
of.run:
  %yword = call i64 @PyLong_AsLongLong(ptr %yheld)
  br label %both
a.number:
  %nword = call i64 @word(ptr %s, ptr %y, ptr %type)
  %unknown = icmp eq i64 %nword, 0
  br i1 %unknown, label %slow, label %both
both:
  %right = phi ptr [ %ykey, %of.run ], [ %type, %a.number ]
  %w1 = phi i64 [ %yword, %of.run ], [ %nword, %a.number ]
  %right.w = ptrtoint ptr %right to i64
  %entry = call ptr @find(ptr %s, i64 %op, ptr %xkey, i64 %right.w, i64 0, i64 0)
  %absent = icmp eq ptr %entry, null
  br i1 %absent, label %slow, label %met
met:
  %xheld = call ptr @pointed(ptr %x, i64 $S_WORD)
  %w0 = call i64 @PyLong_AsLongLong(ptr %xheld)
  %made = call ptr @note(ptr %s, ptr %entry, ptr %run, i64 %w0, i64 %w1, i64 0, i64 2)
  %refused = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %refused, label %slow, label %done
done:
  ret ptr %made
slow:
  %other = call ptr @left(ptr %s, i64 %op, ptr %x, ptr %y, i64 2)
  ret ptr %other
error:
  ret ptr null
}

define internal ptr @one(ptr %s, ptr %x, i64 %op, i64 %a, i64 %b, i64 %c) {
  %xkey = call ptr @pointed(ptr %x, i64 $S_KEY)
  %entry = call ptr @find(ptr %s, i64 %op, ptr %xkey, i64 %a, i64 %b, i64 %c)
  %absent = icmp eq ptr %entry, null
  br i1 %absent, label %slow, label %met
met:
  %run = call ptr @pointed(ptr %x, i64 $S_RUN)
  %xheld = call ptr @pointed(ptr %x, i64 $S_WORD)
  %w0 = call i64 @PyLong_AsLongLong(ptr %xheld)
  %made = call ptr @note(ptr %s, ptr %entry, ptr %run, i64 %w0, i64 0, i64 0, i64 1)
  ret ptr %made
slow:
  ret ptr inttoptr (i64 1 to ptr)
}

define internal ptr @unary(ptr %x, i64 %op) {
  %s = call ptr @state(ptr %x)
  %bad = icmp eq ptr %s, null
  br i1 %bad, label %error, label %begin
begin:
  %made = call ptr @one(ptr %s, ptr %x, i64 %op, i64 0, i64 0, i64 0)
  %refused = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %refused, label %slow, label %done
done:
  ret ptr %made
slow:
  %other = call ptr @left(ptr %s, i64 %op, ptr %x, ptr null, i64 1)
  ret ptr %other
error:
  ret ptr null
}

; A part of a slice as a number, -2^63 for None; 1 - 2^63 where it is neither.
define internal i64 @place(ptr %s, ptr %part) {
  %overflow = alloca i32
  %none = call ptr @pointed(ptr %s, i64 $NONE_BYTES)
  %is.none = icmp eq ptr %part, %none
  br i1 %is.none, label %no, label %some
no:
  ret i64 $ABSENT
some:
  %type = call ptr @pointed(ptr %part, i64 $TYPE)
  %int = call ptr @pointed(ptr %s, i64 $INT_BYTES)
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %an.int, label %other
an.int:
  store i32 0, ptr %overflow
  %whole = call i64 @PyLong_AsLongLongAndOverflow(ptr %part, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  %low = icmp slt i64 %whole, $LOWEST
  %high = xor i1 %low, true
  %inside = and i1 %fits, %high
  br i1 %inside, label %good, label %other
good:
  ret i64 %whole
other:
  ret i64 $OTHER
}

define ptr @getitem(ptr %x, ptr %index) {
  %overflow = alloca i32
  %s = call ptr @state(ptr %x)
  %bad = icmp eq ptr %s, null
  br i1 %bad, label %error, label %begin
begin:
  %run = call ptr @pointed(ptr %x, i64 $S_RUN)
  %xkey = call ptr @pointed(ptr %x, i64 $S_KEY)
  %type = call ptr @pointed(ptr %index, i64 $TYPE)
  %int = call ptr @pointed(ptr %s, i64 $INT_BYTES)
  %is.int = icmp eq ptr %type, %int
  br i1 %is.int, label %an.int, label %no.int
an.int:
  store i32 0, ptr %overflow
  %k = call i64 @PyLong_AsLongLongAndOverflow(ptr %index, ptr %overflow)
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  br i1 %fits, label %row, label %slow
row:
  %entry = call ptr @find(ptr %s, i64 $ROW, ptr %xkey, i64 1, i64 0, i64 0)
  %absent = icmp eq ptr %entry, null
  br i1 %absent, label %slow, label %met
met:
  %size = call i64 @held(ptr %entry, i64 9)
  %negative = icmp slt i64 %k, 0
  %wrapped = add i64 %k, %size
  %at = select i1 %negative, i64 %wrapped, i64 %k
  %inside = icmp ult i64 %at, %size
  br i1 %inside, label %within, label %slow
within:
  %w1 = call i64 @number(ptr %s, i64 2, i64 %at)
  %unknown = icmp eq i64 %w1, 0
  br i1 %unknown, label %slow, label %known
known:
  %xheld = call ptr @pointed(ptr %x, i64 $S_WORD)
  %w0 = call i64 @PyLong_AsLongLong(ptr %xheld)
  %made = call ptr @note(ptr %s, ptr %entry, ptr %run, i64 %w0, i64 %w1, i64 0, i64 2)
  %refused = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %refused, label %slow, label %done
no.int:
  %slice = call ptr @pointed(ptr %s, i64 $SLICE_BYTES)
  %is.slice = icmp eq ptr %type, %slice
  br i1 %is.slice, label %a.slice, label %slow
a.slice:
  %p0 = call ptr @pointed(ptr %index, i64 $P_START)
  %p1 = call ptr @pointed(ptr %index, i64 $P_STOP)
  %p2 = call ptr @pointed(ptr %index, i64 $P_STEP)
  %v0 = call i64 @place(ptr %s, ptr %p0)
  %v1 = call i64 @place(ptr %s, ptr %p1)
  %v2 = call i64 @place(ptr %s, ptr %p2)
  %u0 = icmp eq i64 %v0, $OTHER
  %u1 = icmp eq i64 %v1, $OTHER
  %u2 = icmp eq i64 %v2, $OTHER
  %u3 = or i1 %u0, %u1
  %u4 = or i1 %u2, %u3
  br i1 %u4, label %slow, label %parts
parts:
  %cut = call ptr @one(ptr %s, ptr %x, i64 $SLICE, i64 %v0, i64 %v1, i64 %v2)
  %not = icmp eq ptr %cut, inttoptr (i64 1 to ptr)
  br i1 %not, label %slow, label %done
done:
  %found = phi ptr [ %made, %known ], [ %cut, %parts ]
  ret ptr %found
slow:
  %other = call ptr @left(ptr %s, i64 $ROW, ptr %x, ptr %index, i64 2)
  ret ptr %other
error:
  ret ptr null
}

; x ** y, where a whole number is a part of what is done, and no operand.
define ptr @method_pow(ptr %x, ptr %y) {
  %s = call ptr @state(ptr %x)
  %bad = icmp eq ptr %s, null
  br i1 %bad, label %error, label %begin
begin:
  %exponent = call i64 @place(ptr %s, ptr %y)
  %is.other = icmp eq i64 %exponent, $OTHER
  br i1 %is.other, label %any, label %whole
any:
  %of.any = call ptr @binary(ptr %x, ptr %y, i64 $POW)
  ret ptr %of.any
whole:
  %made = call ptr @one(ptr %s, ptr %x, i64 $POWER, i64 %exponent, i64 1, i64 0)
  %refused = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %refused, label %slow, label %done
done:
  ret ptr %made
slow:
  %other = call ptr @left(ptr %s, i64 $POW, ptr %x, ptr %y, i64 2)
  ret ptr %other
error:
  ret ptr null
}

; An operand of a function of JAX: its type as a part of a key, and its word; is it a symbol of the run, or a float?
define internal i1 @operand(ptr %s, ptr %run, ptr %y, ptr %part, ptr %into) {
  %type = call ptr @pointed(ptr %y, i64 $TYPE)
  %symbol = call ptr @pointed(ptr %s, i64 $SYMBOL_BYTES)
  %is.symbol = icmp eq ptr %type, %symbol
  br i1 %is.symbol, label %a.symbol, label %no.symbol
a.symbol:
  %yrun = call ptr @pointed(ptr %y, i64 $S_RUN)
  %same = icmp eq ptr %run, %yrun
  br i1 %same, label %of.run, label %other
of.run:
  %ykey = call ptr @pointed(ptr %y, i64 $S_KEY)
  store ptr %ykey, ptr %part
  %yheld = call ptr @pointed(ptr %y, i64 $S_WORD)
  %yword = call i64 @PyLong_AsLongLong(ptr %yheld)
  store i64 %yword, ptr %into
  ret i1 true
no.symbol:
  %float = call ptr @pointed(ptr %s, i64 $FLOAT_BYTES)
  %is.float = icmp eq ptr %type, %float
  br i1 %is.float, label %a.float, label %other
a.float:
  %word = call i64 @word(ptr %s, ptr %y, ptr %type)
  store ptr %type, ptr %part
  store i64 %word, ptr %into
  %known = icmp ne i64 %word, 0
  ret i1 %known
other:
  ret i1 false
}

; A function of JAX of up to three operands; `self`: the function in Python, the class of symbols, its number.
define ptr @called(ptr %self, ptr %args, i64 %count, ptr %names) {
  %key1 = alloca i64
  %key2 = alloca i64
  %word1 = alloca i64
  %word2 = alloca i64
  store i64 0, ptr %key1
  store i64 0, ptr %key2
  store i64 0, ptr %word1
  store i64 0, ptr %word2
  %symbol = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %some = icmp sgt i64 %count, 0
  %few = icmp sle i64 %count, $N_AT_ONCE
  %no.names = icmp eq ptr %names, null
  %any = and i1 %some, %few
  %alone = and i1 %any, %no.names
  br i1 %alone, label %single, label %slow
single:
  %x = load ptr, ptr %args
  %type = call ptr @pointed(ptr %x, i64 $TYPE)
  %is.symbol = icmp eq ptr %type, %symbol
  br i1 %is.symbol, label %a.symbol, label %slow
a.symbol:
  %s = call ptr @state(ptr %x)
  %bad = icmp eq ptr %s, null
  br i1 %bad, label %error, label %begin
begin:
  %run = call ptr @pointed(ptr %x, i64 $S_RUN)
  %two = icmp sgt i64 %count, 1
  br i1 %two, label %second, label %ready
second:
  %y = call ptr @pointed(ptr %args, i64 8)
  %good1 = call i1 @operand(ptr %s, ptr %run, ptr %y, ptr %key1, ptr %word1)
  br i1 %good1, label %more, label %slow
more:
  %three = icmp sgt i64 %count, 2
  br i1 %three, label %third, label %ready
third:
  %z = call ptr @pointed(ptr %args, i64 16)
  %good2 = call i1 @operand(ptr %s, ptr %run, ptr %z, ptr %key2, ptr %word2)
  br i1 %good2, label %ready, label %slow
ready:
  %number = call ptr @PyTuple_GetItem(ptr %self, i64 2)
  %op = call i64 @PyLong_AsLongLong(ptr %number)
  %xkey = call ptr @pointed(ptr %x, i64 $S_KEY)
  %k1 = load i64, ptr %key1
  %k2 = load i64, ptr %key2
  %entry = call ptr @find(ptr %s, i64 %op, ptr %xkey, i64 %k1, i64 %k2, i64 0)
  %absent = icmp eq ptr %entry, null
  br i1 %absent, label %slow, label %met
met:
  %xheld = call ptr @pointed(ptr %x, i64 $S_WORD)
  %w0 = call i64 @PyLong_AsLongLong(ptr %xheld)
  %w1 = load i64, ptr %word1
  %w2 = load i64, ptr %word2
  %made = call ptr @note(ptr %s, ptr %entry, ptr %run, i64 %w0, i64 %w1, i64 %w2, i64 %count)
  %refused = icmp eq ptr %made, inttoptr (i64 1 to ptr)
  br i1 %refused, label %slow, label %done
done:
  ret ptr %made
slow:
  %function = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %other = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %count, ptr %names)
  ret ptr %other
error:
  ret ptr null
}
"""
