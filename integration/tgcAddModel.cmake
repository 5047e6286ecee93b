# tgc_add_model(TARGET MODEL file.onnx [NAME name] [OPTIONS option...] [SHARED|STATIC|OBJECT])
#
# Adds a library: the model as C, which tgc writes when the project is built and the project's
# compiler compiles. target_link_libraries(app PRIVATE TARGET) is all that a user of it needs: NAME.h
# is found, libm and, where OPTIONS has --threads, threads are linked.
#
#   MODEL     .onnx or .tg; a relative path is one from the current source directory
#   NAME      the model's C name, its files are NAME.c and NAME.h; TARGET as an identifier otherwise
#   OPTIONS   of `tgc compile`; files and folders in them are relative as MODEL is. By a generator of
#             several configurations, generator expressions in them give each configuration its C
#   SHARED, STATIC, OBJECT   as in add_library, whose default holds otherwise (BUILD_SHARED_LIBS)
#
# The C is written again when the model, its external data, a file in OPTIONS or tgc has changed. The
# target's property TGC_WEIGHTS is the path of NAME.weights, which tgc writes for --weights=incbin and
# --weights=file, and for large models without being asked.
#
# Needs the imported program tgc::tgc, which tgcConfig.cmake or tgc's CMakeLists.txt has made.
cmake_minimum_required(VERSION 3.21)

# Sets OUT to the options that follow, with the files and folders in them as absolute paths: users
# write them from the source directory, CMake reads a depfile from the binary directory.
function(_tgc_absolute_options OUT)
    set(named "--tune|--external-data-dir|--library|--link|--keep")
    set(options "")
    set(before "")
    foreach(word IN LISTS ARGN)
        set(head "${word}")
        set(path "")
        if(word MATCHES "^((${named})=|@)(.+)$")
            set(head "${CMAKE_MATCH_1}")
            set(path "${CMAKE_MATCH_3}")
        elseif(before MATCHES "^(${named})$")
            set(head "")
            set(path "${word}")
        elseif((word MATCHES "^-i.*=" OR before STREQUAL "-i") AND word MATCHES "^(.*=)([^=]+)$")
            set(head "${CMAKE_MATCH_1}")
            set(path "${CMAKE_MATCH_2}")
        endif()
        if(NOT path STREQUAL "" AND NOT path MATCHES "^\\$<")
            get_filename_component(path "${path}" ABSOLUTE)
        endif()
        list(APPEND options "${head}${path}")
        set(before "${word}")
    endforeach()
    set(${OUT} "${options}" PARENT_SCOPE)
endfunction()

# Stops with what is wrong in a call of tgc_add_model, before anything is made.
function(_tgc_check_call TARGET)
    set(call "tgc_add_model(${TARGET})")
    if("${TARGET}" STREQUAL "")
        message(FATAL_ERROR "${call}: no target is named. Expected: tgc_add_model(TARGET MODEL "
                            "file.onnx [NAME name] [OPTIONS option...] [SHARED|STATIC|OBJECT])")
    elseif(NOT TARGET tgc::tgc)
        message(FATAL_ERROR "${call}: the program tgc is not known here; find_package(tgc) has to "
                            "come before, in this directory or one above it")
    elseif(model_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "${call}: what is '${model_UNPARSED_ARGUMENTS}'? Expected: tgc_add_model("
                            "TARGET MODEL file.onnx [NAME name] [OPTIONS option...] "
                            "[SHARED|STATIC|OBJECT])")
    elseif("${model_MODEL}" STREQUAL "")
        message(FATAL_ERROR "${call}: no model is given; add MODEL file.onnx")
    elseif("${model_MODEL}" MATCHES ";")
        message(FATAL_ERROR "${call}: MODEL ${model_MODEL}: CMake takes a semicolon for the end of a "
                            "name; rename the file")
    elseif(NOT "${model_NAME}" MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
        message(FATAL_ERROR "${call}: NAME ${model_NAME} is not a name in C")
    elseif("${types}" MATCHES ";")
        message(FATAL_ERROR "${call}: ${types}: a library is one of SHARED, STATIC and OBJECT")
    elseif("${CMAKE_CURRENT_BINARY_DIR}" MATCHES "[#<>;]")
        message(FATAL_ERROR "${call}: CMake makes no file in a folder with '${CMAKE_MATCH_0}' in its "
                            "name, as ${CMAKE_CURRENT_BINARY_DIR} is; build in another (cmake -B)")
    endif()
    get_filename_component(model "${model_MODEL}" ABSOLUTE)
    get_source_file_property(generated "${model}" GENERATED)
    string(FIND "${model}" "${CMAKE_BINARY_DIR}/" built)
    if(NOT EXISTS "${model}" AND NOT generated AND NOT built EQUAL 0)
        message(FATAL_ERROR "${call}: there is no model ${model}")
    endif()
    foreach(word IN LISTS model_OPTIONS)
        if(word MATCHES "^(-o|-M|--emit|--name)")
            message(FATAL_ERROR "${call}: OPTIONS ${word}: tgc_add_model says this itself; NAME is "
                                "the C name")
        elseif(word MATCHES "^--main")
            message(FATAL_ERROR "${call}: OPTIONS ${word}: the target is a library, without a "
                                "program; write that by an add_custom_command() of your own")
        endif()
    endforeach()
    if(NOT CMAKE_C_COMPILER_LOADED)
        message(FATAL_ERROR "${call}: the model is C, and this project has no C compiler; add C to "
                            "the languages of project()")
    endif()
endfunction()

function(tgc_add_model)
    set(TARGET "${ARGV0}")
    cmake_parse_arguments(PARSE_ARGV 1 model "SHARED;STATIC;OBJECT" "MODEL;NAME" "OPTIONS")
    set(types "")
    foreach(type IN ITEMS SHARED STATIC OBJECT)
        if(model_${type})
            list(APPEND types ${type})
        endif()
    endforeach()
    if(NOT DEFINED model_NAME)
        string(MAKE_C_IDENTIFIER "${TARGET}" model_NAME)
    endif()
    _tgc_check_call("${TARGET}")
    get_filename_component(model "${model_MODEL}" ABSOLUTE)
    _tgc_absolute_options(options ${model_OPTIONS})

    # Folders of their own: two targets may share a NAME.
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/tgc/${TARGET}")
    get_property(many GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
    if(many AND options MATCHES "\\$<")
        string(APPEND folder "/$<CONFIG>")
    endif()
    set(stem "${folder}/${model_NAME}")
    get_target_property(tgc tgc::tgc LOCATION)
    set(needed "${model}" "${tgc}")
    if(TARGET tgc_build)
        list(APPEND needed tgc_build)
    endif()
    # CMake writes depfiles anew, and (3.21 to 4.1) leaves # and $ bare where ninja needs them quoted, as tgc
    # does it. With the policy's old behaviour ninja reads tgc's, from the top of the build tree.
    set(depfile "${stem}.d")
    set(depfile_target "${stem}.c")
    if(CMAKE_GENERATOR MATCHES "Ninja" AND "${needed};${folder};${options}" MATCHES "#|\\$[^<]")
        set(CMAKE_WARN_DEPRECATED OFF)
        cmake_policy(SET CMP0116 OLD)
        file(RELATIVE_PATH depfile "${CMAKE_BINARY_DIR}" "${depfile}")
        file(RELATIVE_PATH depfile_target "${CMAKE_BINARY_DIR}" "${depfile_target}")
    endif()
    add_custom_command(
        OUTPUT "${stem}.c" "${stem}.h"
        COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}"
        COMMAND "${tgc}" compile "${model}" -o "${stem}.c" "--name=${model_NAME}" -MD -MF "${stem}.d"
                -MQ "${depfile_target}" ${options}
        DEPENDS ${needed}
        DEPFILE "${depfile}"
        COMMENT "tgc: ${model_NAME}.c"
        COMMAND_EXPAND_LISTS VERBATIM)

    add_library("${TARGET}" ${types} "${stem}.c" "${stem}.h")
    set(include include)
    if(CMAKE_INSTALL_INCLUDEDIR)
        set(include "${CMAKE_INSTALL_INCLUDEDIR}")
    endif()
    target_include_directories("${TARGET}" PUBLIC "$<BUILD_INTERFACE:${folder}>"
                               "$<INSTALL_INTERFACE:${include}>")
    # A shared library shows its functions, whatever the project's own do.
    set_target_properties("${TARGET}" PROPERTIES
        C_STANDARD 11 C_STANDARD_REQUIRED ON C_VISIBILITY_PRESET default WINDOWS_EXPORT_ALL_SYMBOLS ON
        UNITY_BUILD OFF PUBLIC_HEADER "${stem}.h" TGC_WEIGHTS "${stem}.weights"
        ADDITIONAL_CLEAN_FILES "${stem}.weights;${stem}.d")
    get_property(can_be_shared GLOBAL PROPERTY TARGET_SUPPORTS_SHARED_LIBS)
    if(can_be_shared AND NOT DEFINED CMAKE_POSITION_INDEPENDENT_CODE)
        set_target_properties("${TARGET}" PROPERTIES POSITION_INDEPENDENT_CODE ON)
    endif()

    # A static library passes on what it is linked to, as objects do.
    if(NOT WIN32 AND NOT APPLE)
        target_link_libraries("${TARGET}" PUBLIC m)
    endif()
    if(options MATCHES "--threads|@")
        set(THREADS_PREFER_PTHREAD_FLAG ON)
        find_package(Threads)
        if(TARGET Threads::Threads)
            target_link_libraries("${TARGET}" PUBLIC Threads::Threads)
        else()
            string(TOUPPER "${model_NAME}" macro)
            message(WARNING "tgc_add_model(${TARGET}): --threads, and this system has no threads that "
                            "CMake finds; the model shares its work by parallel_for of "
                            "${model_NAME}_options alone (${macro}_NO_PTHREADS)")
            target_compile_definitions("${TARGET}" PRIVATE "${macro}_NO_PTHREADS")
        endif()
    endif()
endfunction()
