"""What we use of py4j."""

class JavaThrowable:
    def getMessage(self) -> str | None: ...  # noqa: N802 - Java's name

class Py4JError(Exception): ...

class Py4JJavaError(Py4JError):
    java_exception: JavaThrowable
